// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "format/enums.h"
#include "probe/hooks/cuda/cuda_types.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/session/slot_table.h"

// Which contexts this process has, and on which device each is. A fixed table without locks.
namespace vramscope::probe::cuda {

// Where a call acts: the calling thread's current context.
struct Place {
  CUcontext context = nullptr;
  int32_t device = format::kNoDevice;
};

// Asks the driver for the current context. One that was never seen (made through a private export
// table, or before the recording) is described here, as "primary context", which it is as a rule.
Place CurrentPlace();

// Whether the device has its primary context. Not where the driver cannot say.
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
// The device that it was on, or kNoDevice where it was never seen.
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

}  // namespace vramscope::probe::cuda
