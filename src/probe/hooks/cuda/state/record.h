// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "format/enums.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/state/context.h"

// The records that several families of wrappers write.
namespace vramscope::probe::cuda {

// Kernel names can be long: the mangled name of a template is cut there.
inline constexpr size_t kMaxNameBytes = 4096;

struct Allocation {
  format::MemoryKind kind = format::MemoryKind::kDevice;
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t actual = 0;
  uint64_t pool = 0;
  CUstream stream = nullptr;
  uint64_t flags = 0;
};

void RecordAlloc(HookId api,
                 const CallTimes& times,
                 const Place& place,
                 const Allocation& allocation);
void RecordFree(HookId api,
                const CallTimes& times,
                format::MemoryKind kind,
                uint64_t address,
                CUstream stream = nullptr);
// Whether the launcher is to look at it while the program runs.
enum class Alarm : uint8_t { kYes, kNot };
// An allocating call that was refused. Nothing for size 0 without reason to want memory.
void RecordFailure(HookId api,
                   const CallTimes& times,
                   const Place& place,
                   CUresult result,
                   uint64_t size,
                   Alarm alarm = Alarm::kYes);

// Counts what this thread recorded of allocations and frees.
extern constinit VRAMSCOPE_TLS uint32_t t_recorded;

template <class Handle>
uint64_t Bits(Handle* handle) {
  return reinterpret_cast<uintptr_t>(handle);
}

// ---- memory that several processes hold
// Counted once, so the reader has to know which import is of which export.

// The content of what both sides pass on, as a number. Never 0.
uint64_t MakeShareKey(const void* content, size_t bytes);

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
uint64_t FindSize(CUdeviceptr address);
// Its begin, or the address itself.
CUdeviceptr FindBase(CUdeviceptr address);

}  // namespace vramscope::probe::cuda
