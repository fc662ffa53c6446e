// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "format/records.h"
#include "probe/hooks/cuda/entry_points/pools.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/state/overflow.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"

namespace vramscope::probe::cuda {
namespace {

template <HookId kId>
CUresult Init(unsigned int flags) {
  HookCall<kId> call;
  const CUresult result = call(flags);
  if (call.watching() && result == kSuccess)
    NoteInit(call.times());
  return result;
}

// A reading before, where some context is current; one afterwards, as soon as the new one is.
template <HookId kId, class... Args>
CUresult CreateContext(CUcontext* context, Args... args) {
  HookCall<kId> call;
  if (!call.watching())
    return call(context, args...);
  TakeReading(CurrentPlace());
  const CUresult result = call(context, args...);
  const CUdevice device = LastOf(args...);
  if (result == kSuccess) {
    NoteContextCreate(kId, call.times(), *context, device,
                      kId == HookId::cuDevicePrimaryCtxRetain ? ContextOrigin::kPrimary
                                                              : ContextOrigin::kCreated);
    CatchUpReading(CurrentPlace());
  } else {
    RecordFailure(kId, call.times(), {.device = device}, result, 0);
  }
  return result;
}

// Everything that was made in it is gone, streams that were being captured included.
template <HookId kId>
void NoteContextEnd(const HookCall<kId>& call, CUcontext context) {
  const int32_t device = NoteContextDestroy(kId, call.times(), context);
  if (device != format::kNoDevice && !HasContext(device))
    ReadPoolsWithoutContext(device);
  ForgetFunctions();
  ForgetCapturesWithoutContext();
  ReadPoolsAfterSynchronisation();  // what could not be read while its streams were captured
  RequestReading(format::kNoDevice);
  CatchUpReading(CurrentPlace());
}

template <HookId kId>
CUresult DestroyContext(CUcontext context) {
  HookCall<kId> call;
  const CUresult result = call(context);
  if (call.watching() && result == kSuccess)
    NoteContextEnd(call, context);
  return result;
}

template <HookId kId>
CUresult AttachContext(CUcontext* context, unsigned int flags) {
  HookCall<kId> call;
  const CUresult result = call(context, flags);
  if (call.watching() && result == kSuccess)
    ChangeReferences(*context, 1);
  return result;
}

template <HookId kId>
CUresult DetachContext(CUcontext context) {
  HookCall<kId> call;
  const CUresult result = call(context);
  if (call.watching() && result == kSuccess && ChangeReferences(context, -1))
    NoteContextEnd(call, context);
  return result;
}

template <HookId kId>
void NotePrimaryEnd(const HookCall<kId>& call, CUdevice device) {
  NotePrimaryDestroy(kId, call.times(), device);
  if (!HasContext(device))
    ReadPoolsWithoutContext(device);
  ForgetFunctions();
  ForgetCapturesWithoutContext();
  ReadPoolsAfterSynchronisation();  // what could not be read while its streams were captured
  RequestReading(device);
  CatchUpReading(CurrentPlace());
}

template <HookId kId>
CUresult ReleasePrimary(CUdevice device) {
  HookCall<kId> call;
  const CUresult result = call(device);
  if (call.watching() && result == kSuccess && !IsPrimaryActive(device))
    NotePrimaryEnd(call, device);
  return result;
}

template <HookId kId>
CUresult ResetPrimary(CUdevice device) {
  HookCall<kId> call;
  const CUresult result = call(device);
  if (call.watching() && result == kSuccess)
    NotePrimaryEnd(call, device);
  return result;
}

// The first moment at which a retained primary context can be read.
template <HookId kId>
CUresult MakeCurrent(CUcontext context) {
  HookCall<kId> call;
  const CUresult result = call(context);
  if (call.watching() && result == kSuccess && context != nullptr && IsReadingWanted())
    CatchUpReading(CurrentPlace());
  return result;
}

const char* LimitName(CUlimit limit) {
  switch (limit) {
    case 0:
      return "stack size";
    case 1:
      return "printf FIFO size";
    case 2:
      return "malloc heap size";
    case 3:
      return "device runtime sync depth";
    case 4:
      return "device runtime pending launches";
    default:
      return "other limit";
  }
}

template <HookId kId>
CUresult SetLimit(CUlimit limit, size_t value) {
  const CUresult result = CallEstimated<kId>(
      format::ImplicitKind::kLimit, WriteWhen::kAlways,
      [=] {
        // The next launch may be another thread's, before this call is read.
        ForgetLaunches();
        return Subject{.name = LimitName(limit), .detail = value};
      },
      limit, value);
  // Memory that the limit took away and a launch needs comes back with the next launch, also if
  // that is not recorded.
  if (result == kSuccess)
    ForgetLaunches();
  return result;
}

template <HookId kId, class... Args>
CUresult ChangePeerAccess(CUcontext peer, Args... args) {
  const CUresult result = CallEstimated<kId>(
      format::ImplicitKind::kPeer, WriteWhen::kMoved, [=] { return Subject{.detail = Bits(peer)}; },
      peer, args...);
  if (kId == HookId::cuCtxEnablePeerAccess && result == kSuccess && OverflowIsOn())
    ShareOverflowWith(CurrentPlace().device);
  return result;
}

// Retains the primary context: what that takes is the device's, not this object's alone.
template <HookId kId>
CUresult CreateGreen(CUgreenCtx* context,
                     CUdevResourceDesc resources,
                     CUdevice device,
                     unsigned int flags) {
  return CallEstimated<kId>(
      format::ImplicitKind::kContext, WriteWhen::kAlways,
      [=] { return Subject{.name = "green context", .detail = Bits(*context)}; }, context,
      resources, device, flags);
}

template <HookId kId>
CUresult DestroyGreen(CUgreenCtx context) {
  return CallEstimated<kId>(
      format::ImplicitKind::kContext, WriteWhen::kAlways, [] { return Subject{}; }, context);
}

template <HookId kId>
CUresult ViewGreen(CUcontext* context, CUgreenCtx green) {
  HookCall<kId> call;
  const CUresult result = call(context, green);
  if (call.watching() && result == kSuccess)
    NoteGreenContext(*context);
  return result;
}

}  // namespace
}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_CONTEXTS 1
#include "probe/hooks/cuda/define_wrappers.h"
#undef VRAMSCOPE_CUDA_IS_CONTEXTS
