// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/pools.h"
#include "probe/hooks/cuda/reading.h"
#include "probe/hooks/cuda/record.h"

// Streams share channels, which the driver makes a few at a time: 8 of 33 creations moved memory.
namespace vramscope::probe::cuda {
namespace {

template <HookId kId, class... Args>
CUresult CreateStream(CUstream* stream, Args... args) {
  return CallEstimated<kId>(
      format::ImplicitKind::kStream, WriteWhen::kMoved,
      [=] { return Subject{.detail = Bits(*stream)}; }, stream, args...);
}

template <HookId kId>
CUresult DestroyStream(CUstream stream) {
  const CUresult result = CallEstimated<kId>(
      format::ImplicitKind::kStream, WriteWhen::kMoved,
      [=] { return Subject{.detail = Bits(stream)}; }, stream);
  // What was being captured in it ends with it.
  if (result == kSuccess && NoteCaptureEnd(stream, false) && IsRecording()) {
    ReadPoolsAfterSynchronisation();
    CatchUpReading(CurrentPlace());
  }
  return result;
}

}  // namespace
}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_STREAMS 1
#include "probe/hooks/cuda/define_wrappers.h"
