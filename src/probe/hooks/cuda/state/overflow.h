// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/memory_groups.h"
#include "probe/hooks/cuda/cuda_types.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/state/record.h"

// `vramscope run --overflow`: a request for device memory that would fail gets memory of the host,
// mapped into the GPU. It is the one thing in which the probe changes what the driver answers:
// docs/HOST_SAFETY.md says how.
//
// Off, nothing of it is there: the entry points below lead to their usual wrappers, or to the
// driver itself. On, a few have another one from the start.
namespace vramscope::probe::cuda {

struct OverflowWrapper {
  const char* name;  // of the entry point
  void* wrapper;
};
extern const OverflowWrapper kOverflowWrappers[];
extern const size_t kOverflowWrapperCount;
// nullptr if the entry point has none, or overflow is off.
void* FindOverflowWrapper(const char* name);

// Whether this process was started so.
bool OverflowIsOn();
// Before the driver is attached to. Nothing if it is off.
void PrepareOverflow();

// ---- what is held for the program

// Memory of the host, of `size` bytes at least, at an address of the device's; 0 if there is
// none: the bound is reached, or the driver cannot, which is noted. The calls that it makes are
// estimated by readings: their page tables are the device's.
CUdeviceptr TakeHostMemory(const Place& place, size_t size, uint64_t* taken_bytes);

struct HeldRange {
  CUdeviceptr begin = 0;
  uint64_t asked_bytes = 0;
  int32_t device = 0;
  CUcontext context = nullptr;
};
// The one that the address lies in. False if it is not ours.
bool FindHeld(CUdeviceptr address, HeldRange* range);
// Whether one begins there.
bool IsHeld(CUdeviceptr address);
// As cuMemFree does it: waits for the device first. Returns the driver's result.
CUresult ReleaseHeld(CUdeviceptr address);

// The context is gone with all its memory.
void EndOverflow(uint64_t context);
// The current context may use the memory of another one's device from now on.
void ShareOverflowWith(int32_t device);
// In a forked child, where it is not: the driver does not work there.
void ForgetOverflow();

// Writes a note for `vramscope info`, once for each of these.
enum class OverflowNote : uint8_t { kUnavailable, kSizeReached, kHostReached, kTooMany };
void NoteOverflow(OverflowNote note, const char* call, CUresult result);

}  // namespace vramscope::probe::cuda
