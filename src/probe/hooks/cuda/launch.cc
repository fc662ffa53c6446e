// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/launch.h"

#include "format/enums.h"
#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/handle_set.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/reading.h"
#include "probe/hooks/cuda/record.h"

// The first launch of a function may load its code, grow the context's local memory, and make the
// device heap or the printf buffer. Every later launch costs one look-up.
namespace vramscope::probe::cuda {
namespace {

constinit HandleSet<65536> g_launched{};
// Functions that were put into a graph while it was captured: they happen when the graph is
// launched, which is read too, and their first launch outside of graphs is still to come.
constinit HandleSet<16384> g_captured{};

// A kernel of a library is the same handle in every context, and is loaded in each.
VRAMSCOPE_ALWAYS_INLINE uint64_t KeyOf(CUfunction function) {
  if (VRAMSCOPE_LIKELY(!g_several_contexts.load(std::memory_order_relaxed)))
    return Bits(function);
  auto* const current = DriverCall<CallId::cuCtxGetCurrent>();
  CUcontext context = nullptr;
  if (current != nullptr)
    current(&context);
  return HandleIn(Bits(context), Bits(function));
}

template <HookId kId, class... Args>
VRAMSCOPE_NOINLINE CUresult LaunchFirst(CUfunction function, Args... args) {
  HookCall<kId> call;
  const uint64_t key = KeyOf(function);
  if (!call.watching() ||
      !(IsAnyStreamCapturing() ? g_captured.Insert(key) : g_launched.Insert(key)))
    return call(args...);
  const Place place = CurrentPlace();
  const FreeMemory before = BeginEstimate(place);
  const CUresult result = call(args...);
  if (result != kSuccess)
    g_launched.Erase(key);  // the next one is the first that may take memory
  FinishEstimate(kId, call.times(), result, format::ImplicitKind::kLaunch, WriteWhen::kMoved, place,
                 before, {.function = function});
  return result;
}

template <HookId kId, class... Args>
VRAMSCOPE_ALWAYS_INLINE CUresult Launch(CUfunction function, Args... args) {
  auto* const real = g_real_hooks[static_cast<size_t>(kId)].load(std::memory_order_relaxed);
  if (VRAMSCOPE_LIKELY(real != nullptr && g_launched.Contains(KeyOf(function))))
    return reinterpret_cast<typename HookTraits<kId>::Function*>(real)(args...);
  return LaunchFirst<kId>(function, args...);
}

template <HookId kId, class... Args>
VRAMSCOPE_ALWAYS_INLINE CUresult LaunchFunction(CUfunction function, Args... args) {
  return Launch<kId>(function, function, args...);
}

template <HookId kId, class... Args>
VRAMSCOPE_ALWAYS_INLINE CUresult LaunchConfigured(const CUlaunchConfig* configuration,
                                                  CUfunction function,
                                                  Args... args) {
  return Launch<kId>(function, configuration, function, args...);
}

// One launch on several devices: known by the function of the first.
template <HookId kId>
CUresult LaunchOnDevices(CUDA_LAUNCH_PARAMS* launches, unsigned int count, unsigned int flags) {
  const CUfunction function = launches != nullptr && count != 0 ? launches->function : nullptr;
  return Launch<kId>(function, launches, count, flags);
}

}  // namespace

void ForgetLaunches() {
  g_launched.Clear();
  g_captured.Clear();
}

}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_LAUNCH 1
#include "probe/hooks/cuda/define_wrappers.h"
