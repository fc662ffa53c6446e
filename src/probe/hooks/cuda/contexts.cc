// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "format/records.h"
#include "probe/hooks/cuda/code.h"
#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/launch.h"
#include "probe/hooks/cuda/overflow.h"
#include "probe/hooks/cuda/pools.h"
#include "probe/hooks/cuda/reading.h"
#include "probe/hooks/cuda/record.h"

namespace vramscope::probe::cuda {
namespace {

constexpr auto kNoSubject = [] { return Subject{}; };

// A reading before, where some context is current; one afterwards, as soon as the new one is.
template <HookId kId, class... Args>
CUresult CreateContext(CUcontext* context, CUdevice device, Args... args) {
  HookCall<kId> call;
  if (!call.watching())
    return call(context, args...);
  TakeReading(CurrentPlace());
  const CUresult result = call(context, args...);
  if (result == kSuccess) {
    NoteContextCreate(kId, call.times(), *context, device, ContextOrigin::kCreated);
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
  if (call.watching() && result == kSuccess) {
    NoteContextEnd(call, context);
  }
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

}  // namespace

VRAMSCOPE_CUDA_WRAPPER(cuInit)(unsigned int flags) {
  HookCall<HookId::cuInit> call;
  const CUresult result = call(flags);
  if (call.watching() && result == kSuccess)
    NoteInit(call.times());
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxCreate)(CUcontext* context, unsigned int flags, CUdevice device) {
  return CreateContext<HookId::cuCtxCreate>(context, device, flags, device);
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxCreate_v2)(CUcontext* context, unsigned int flags, CUdevice device) {
  return CreateContext<HookId::cuCtxCreate_v2>(context, device, flags, device);
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxCreate_v3)
(CUcontext* context,
 CUexecAffinityParam* affinity,
 int affinity_count,
 unsigned int flags,
 CUdevice device) {
  return CreateContext<HookId::cuCtxCreate_v3>(context, device, affinity, affinity_count, flags,
                                               device);
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxCreate_v4)
(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags, CUdevice device) {
  return CreateContext<HookId::cuCtxCreate_v4>(context, device, parameters, flags, device);
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxDestroy)(CUcontext context) {
  return DestroyContext<HookId::cuCtxDestroy>(context);
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxDestroy_v2)(CUcontext context) {
  return DestroyContext<HookId::cuCtxDestroy_v2>(context);
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxAttach)(CUcontext* context, unsigned int flags) {
  HookCall<HookId::cuCtxAttach> call;
  const CUresult result = call(context, flags);
  if (call.watching() && result == kSuccess)
    ChangeReferences(*context, 1);
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxDetach)(CUcontext context) {
  HookCall<HookId::cuCtxDetach> call;
  const CUresult result = call(context);
  if (call.watching() && result == kSuccess && ChangeReferences(context, -1))
    NoteContextEnd(call, context);
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice device) {
  HookCall<HookId::cuDevicePrimaryCtxRetain> call;
  if (!call.watching())
    return call(context, device);
  TakeReading(CurrentPlace());
  const CUresult result = call(context, device);
  if (result == kSuccess) {
    NoteContextCreate(HookId::cuDevicePrimaryCtxRetain, call.times(), *context, device,
                      ContextOrigin::kPrimary);
    CatchUpReading(CurrentPlace());
  } else {
    RecordFailure(HookId::cuDevicePrimaryCtxRetain, call.times(), {.device = device}, result, 0);
  }
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuDevicePrimaryCtxRelease)(CUdevice device) {
  return ReleasePrimary<HookId::cuDevicePrimaryCtxRelease>(device);
}

VRAMSCOPE_CUDA_WRAPPER(cuDevicePrimaryCtxRelease_v2)(CUdevice device) {
  return ReleasePrimary<HookId::cuDevicePrimaryCtxRelease_v2>(device);
}

VRAMSCOPE_CUDA_WRAPPER(cuDevicePrimaryCtxReset)(CUdevice device) {
  return ResetPrimary<HookId::cuDevicePrimaryCtxReset>(device);
}

VRAMSCOPE_CUDA_WRAPPER(cuDevicePrimaryCtxReset_v2)(CUdevice device) {
  return ResetPrimary<HookId::cuDevicePrimaryCtxReset_v2>(device);
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxSetCurrent)(CUcontext context) {
  return MakeCurrent<HookId::cuCtxSetCurrent>(context);
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxPushCurrent)(CUcontext context) {
  return MakeCurrent<HookId::cuCtxPushCurrent>(context);
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxPushCurrent_v2)(CUcontext context) {
  return MakeCurrent<HookId::cuCtxPushCurrent_v2>(context);
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxSetLimit)(CUlimit limit, size_t value) {
  const CUresult result = CallEstimated<HookId::cuCtxSetLimit>(
      format::ImplicitKind::kLimit, WriteWhen::kAlways,
      [=] {
        // The next launch may be another thread's, before this call is read.
        ForgetLaunches();
        return Subject{.name = LimitName(limit), .detail = value};
      },
      limit, value);
  // What a launch needs and the limit took away comes back with the next launch, also where it is
  // not recorded now.
  if (result == kSuccess)
    ForgetLaunches();
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxEnablePeerAccess)(CUcontext peer, unsigned int flags) {
  const CUresult result = CallEstimated<HookId::cuCtxEnablePeerAccess>(
      format::ImplicitKind::kPeer, WriteWhen::kMoved, [=] { return Subject{.detail = Bits(peer)}; },
      peer, flags);
  if (result == kSuccess && OverflowIsOn())
    ShareOverflowWith(CurrentPlace().device);
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxDisablePeerAccess)(CUcontext peer) {
  return CallEstimated<HookId::cuCtxDisablePeerAccess>(
      format::ImplicitKind::kPeer, WriteWhen::kMoved, [=] { return Subject{.detail = Bits(peer)}; },
      peer);
}

// Retains the primary context: what that takes is the device's, not this object's alone.
VRAMSCOPE_CUDA_WRAPPER(cuGreenCtxCreate)
(CUgreenCtx* context, CUdevResourceDesc resources, CUdevice device, unsigned int flags) {
  return CallEstimated<HookId::cuGreenCtxCreate>(
      format::ImplicitKind::kContext, WriteWhen::kAlways,
      [=] { return Subject{.name = "green context", .detail = Bits(*context)}; }, context,
      resources, device, flags);
}

VRAMSCOPE_CUDA_WRAPPER(cuGreenCtxDestroy)(CUgreenCtx context) {
  return CallEstimated<HookId::cuGreenCtxDestroy>(format::ImplicitKind::kContext,
                                                  WriteWhen::kAlways, kNoSubject, context);
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxFromGreenCtx)(CUcontext* context, CUgreenCtx green) {
  HookCall<HookId::cuCtxFromGreenCtx> call;
  const CUresult result = call(context, green);
  if (call.watching() && result == kSuccess)
    NoteGreenContext(*context);
  return result;
}

}  // namespace vramscope::probe::cuda
