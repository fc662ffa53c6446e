// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/enums.h"
#include "probe/hooks/cuda/hook_call.h"

// Memory that several processes hold: counted once, so the reader has to know which import is of
// which export.
namespace vramscope::probe::cuda {

// The content of what both sides pass on, as a number. Never 0.
uint64_t KeyOf(const void* content, size_t bytes);

// `address` or `handle` is what this process calls the memory; key 0: nothing tells both sides'
// records together, as with a file descriptor.
void RecordShare(HookId api,
                 const CallTimes& times,
                 format::ShareKind kind,
                 int32_t device,
                 uint64_t address,
                 uint64_t handle,
                 uint64_t key);

// The bytes of the allocation that an address lies in, 0 where the driver does not say.
uint64_t SizeAt(CUdeviceptr address);
// Its begin, or the address itself.
CUdeviceptr BaseOf(CUdeviceptr address);

}  // namespace vramscope::probe::cuda
