// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "format/enums.h"
#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/hook_call.h"

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

}  // namespace vramscope::probe::cuda
