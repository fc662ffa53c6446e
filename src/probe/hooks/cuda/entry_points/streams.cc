// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "probe/hooks/cuda/entry_points/pools.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"

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
  // A capture in it ends with it.
  if (result == kSuccess && NoteCaptureEnd(stream, false) && IsRecording()) {
    ReadPoolsAfterSynchronisation();
    CatchUpReading(CurrentPlace());
  }
  return result;
}

// ---- calls that wait for the device, or say that it is done: pools give memory back in them, and
// kernels have touched what they touch. While no pool has anything to give back, and the process no
// managed memory, a call costs four loads and a time stamp.

bool MayChange() {
  return MayPoolsShrink() || MayPagesMove();
}

void Read() {
  ReadPoolsAfterSynchronisation();
  if (MayPagesMove())
    ReadPagesAfterSynchronisation();
}

template <HookId kId, class... Args>
VRAMSCOPE_NOINLINE CUresult CallAndRead(Args... args) {
  HookCall<kId> call;
  const ShrinkingCall shrinking;
  const CUresult result = call(args...);
  if (call.watching() && result == kSuccess)
    Read();
  return result;
}

// Another thread's call gave them something to give back, or made managed memory, while this one
// was under way.
VRAMSCOPE_NOINLINE void ReadLate(uint64_t began) {
  if (t_cuda_depth != 0 || !IsRecording())
    return;
  t_cuda_call_begin = began;
  Read();
}

template <HookId kId, class... Args>
VRAMSCOPE_ALWAYS_INLINE CUresult Synchronise(Args... args) {
  auto* const real = g_real_hooks[static_cast<size_t>(kId)].load(std::memory_order_relaxed);
  if (VRAMSCOPE_UNLIKELY(real == nullptr || MayChange()))
    return CallAndRead<kId>(args...);
  const uint64_t began = Now();
  const CUresult result = reinterpret_cast<typename HookTraits<kId>::Function*>(real)(args...);
  if (VRAMSCOPE_UNLIKELY(MayChange()) && result == kSuccess)
    ReadLate(began);
  return result;
}

}  // namespace
}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_STREAMS 1
#include "probe/hooks/cuda/define_wrappers.h"
#undef VRAMSCOPE_CUDA_IS_STREAMS
