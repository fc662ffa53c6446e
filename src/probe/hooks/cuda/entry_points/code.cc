// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "format/enums.h"
#include "format/records.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/state/handle_set.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/session/stream.h"

// Code takes memory when it is loaded, and, being loaded lazily, when it is first asked for.
namespace vramscope::probe::cuda {
namespace {

using format::ImplicitKind;

// Functions and kernels that were asked for: programs do that again for every launch.
constinit HandleSet<16384> g_touched{};

// `code` is the code itself or the name of its file.
template <HookId kId, class Module, class Code, class... Args>
CUresult LoadCode(Module* module, const Code* code, Args... args) {
  return CallEstimated<kId>(
      ImplicitKind::kModule, WriteWhen::kAlways,
      [=] {
        Subject subject{.detail = Bits(*module)};
        if constexpr (std::is_same_v<Code, char>)
          subject.name = code;
        return subject;
      },
      module, code, args...);
}

template <HookId kId, class Module>
CUresult UnloadCode(Module module) {
  const CUresult result = CallEstimated<kId>(
      ImplicitKind::kModule, WriteWhen::kAlways, [=] { return Subject{.detail = Bits(module)}; },
      module);
  if (result == kSuccess)
    ForgetFunctions();
  return result;
}

// A library has code in every context that used it, on any device: only the current one was read.
void NoteUnloadElsewhere(uint64_t begin, uint64_t end) {
  const uint64_t known = KnownDevices();
  if (t_cuda_depth != 0 || !IsRecording() || (known & (known - 1)) == 0)
    return;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::Implicit{.begin = begin,
                                 .end = end,
                                 .api = scope->InternLiteral(HookName(HookId::cuLibraryUnload)),
                                 .kind = static_cast<uint64_t>(ImplicitKind::kModule),
                                 .device = format::kNoDevice});
  RequestReading(format::kNoDevice);
}

template <HookId kId>
CUresult UnloadLibrary(CUlibrary library) {
  const uint64_t begin = Now();
  const CUresult result = UnloadCode<kId>(library);
  if (result == kSuccess)
    NoteUnloadElsewhere(begin, Now());
  return result;
}

// Looks something up by name, each time between readings: programs keep what they get.
template <HookId kId, class Out, class Module>
CUresult LookUp(Out* out, Module module, const char* name) {
  return CallEstimated<kId>(
      ImplicitKind::kFunction, WriteWhen::kMoved,
      [=] { return Subject{.name = name, .detail = Bits(module)}; }, out, module, name);
}

template <HookId kId, class Address, class Size, class Module>
CUresult LookUp(Address* address, Size* size, Module module, const char* name) {
  return CallEstimated<kId>(
      ImplicitKind::kFunction, WriteWhen::kMoved,
      [=] { return Subject{.name = name, .detail = Bits(module)}; }, address, size, module, name);
}

template <HookId kId>
CUresult LookUp(CUmodule* module, CUlibrary library) {
  return CallEstimated<kId>(
      ImplicitKind::kFunction, WriteWhen::kMoved, [=] { return Subject{.detail = Bits(library)}; },
      module, library);
}

// Between readings at the first sight of `handle` in the current context only.
template <HookId kId, class Handle, class... Args>
CUresult Touch(Handle handle, Args... args) {
  HookCall<kId> call;
  if (!call.watching())
    return call(args...);
  const Place place = CurrentPlace();
  const uint64_t key = MakeContextKey(Bits(place.context), Bits(handle));
  if (!g_touched.Insert(key))
    return call(args...);
  const FreeMemory before = BeginEstimate(place);
  const CUresult result = call(args...);
  if (result != kSuccess)
    g_touched.Erase(key);
  FinishEstimate(kId, call.times(), result, ImplicitKind::kFunction, WriteWhen::kMoved, place,
                 before, {.detail = Bits(handle)});
  return result;
}

template <HookId kId, class... Args>
CUresult TouchFirst(CUfunction function, Args... args) {
  return Touch<kId>(function, function, args...);
}

template <HookId kId, class... Args>
CUresult TouchLast(Args... args) {
  return Touch<kId>(LastOf(args...), args...);
}

// ---- launches: the first one of a function may load its code, grow the context's local memory,
// and make the device heap or the printf buffer. Every later launch costs one look-up.

constinit HandleSet<65536> g_launched{};
// Functions that were put into a graph while it was captured: they happen when the graph is
// launched, which is read too, and their first launch outside of graphs is still to come.
constinit HandleSet<16384> g_captured{};

// A kernel of a library is the same handle in every context, and is loaded in each.
VRAMSCOPE_ALWAYS_INLINE uint64_t MakeLaunchKey(CUfunction function) {
  if (VRAMSCOPE_LIKELY(!g_several_contexts.load(std::memory_order_relaxed)))
    return Bits(function);
  auto* const current = DriverCall<CallId::cuCtxGetCurrent>();
  CUcontext context = nullptr;
  if (current != nullptr)
    current(&context);
  return MakeContextKey(Bits(context), Bits(function));
}

template <HookId kId, class... Args>
VRAMSCOPE_NOINLINE CUresult LaunchFirst(CUfunction function, Args... args) {
  HookCall<kId> call;
  const uint64_t key = MakeLaunchKey(function);
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
  if (VRAMSCOPE_LIKELY(real != nullptr && g_launched.Contains(MakeLaunchKey(function))))
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

// One launch on several devices: identified by the function of the first.
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

void ForgetFunctions() {
  g_touched.Clear();
  ForgetLaunches();
}

}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_CODE 1
#include "probe/hooks/cuda/define_wrappers.h"
#undef VRAMSCOPE_CUDA_IS_CODE
