// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "format/enums.h"
#include "probe/hooks/cuda/cuda_types.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/session/slot_table.h"

// The contexts of this process, and the device of each. A fixed table without locks.
namespace vramscope::probe::cuda {

// A set of devices is a word.
inline constexpr int32_t kMaxDevices = 64;

// The place of a call: the calling thread's current context.
struct Place {
  CUcontext context = nullptr;
  int32_t device = format::kNoDevice;
};

// Asks the driver for the current context. A context that was never seen (made through a private
// export table, or before the recording) is described here, as "primary context", which it usually
// is.
Place CurrentPlace();

// Whether the device's primary context exists. Not where the driver cannot say.
bool IsPrimaryActive(int32_t device);

enum class ContextOrigin : uint8_t { kCreated, kPrimary, kGreen };

// The first cuInit that succeeded.
void NoteInit(const CallTimes& times);

// A call made or retained `context`: described, unless it was there before.
void NoteContextCreate(HookId api,
                       const CallTimes& times,
                       CUcontext context,
                       int32_t device,
                       ContextOrigin origin);
// A view of the primary context: what is allocated under it is the primary one's, and stays when it
// goes.
void NoteGreenContext(CUcontext context);
// The device that it was on, or kNoDevice if it was never seen.
int32_t NoteContextDestroy(HookId api, const CallTimes& times, CUcontext context);
// Whether some context of the device is known; kNoDevice: of any.
bool HasContext(int32_t device);
// More than one context was seen: one kernel can be launched in several.
extern std::atomic<bool> g_several_contexts;
// The device's primary context ended. Nothing when it was never seen.
void NotePrimaryDestroy(HookId api, const CallTimes& times, int32_t device);
// Old references to a context, counted from 1: true when `change` takes the last one away.
bool ChangeReferences(CUcontext context, int change);

// Describes a device at its first sight.
void NoteDevice(int32_t device);
// One bit for each device that was described.
uint64_t KnownDevices();

void ForgetContexts(OtherThreads others);

// The records that several families of wrappers write.

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

// The bytes of the allocation that an address lies in, 0 if the driver does not say.
uint64_t FindSize(CUdeviceptr address);
// Before a free in a recording that began late: the allocation may be from before. Managed memory
// and that of pools is no memory of the process's own.
void RecordPriorAllocation(CUdeviceptr address);
// Its begin, or the address itself.
CUdeviceptr FindBase(CUdeviceptr address);

}  // namespace vramscope::probe::cuda
