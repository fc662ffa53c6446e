// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <atomic>

#include "probe/hooks/c10/watch.h"
#include "probe/hooks/torch/torch.h"
#include "probe/platform/dynamic.h"
#include "probe/session/source.h"
#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

// PyTorch's allocators. A caching allocator reports every block that it gives out or takes back
// through c10::reportMemoryUsageToProfiler, and every CPU tensor's storage comes from
// c10::alloc_cpu. Both calls cross a library border, so these preloaded definitions come first.
// PyTorch is not needed to build this: the names are the mangled ones (Itanium C++ ABI).
//
// The wrappers are not noexcept: alloc_cpu throws where memory is short, and that passes through.
namespace vramscope::probe {
namespace {

// struct Device { int8_t type; int8_t index; }, passed as one 16-bit value.
constexpr int8_t kDeviceTypeCuda = 1;
constexpr uint32_t kTotalsEvery = 4096;  // events between two readings of the allocator's totals

using ReportFn = void (*)(void*, int64_t, size_t, size_t, uint16_t);
using ReportOomFn = void (*)(int64_t, size_t, size_t, uint16_t);
using AllocCpuFn = void* (*)(size_t);
using FreeCpuFn = void (*)(void*);

// The real function, found once in the libc10 that calls us: torch's libraries are loaded
// RTLD_LOCAL, so RTLD_NEXT does not see them.
template <class Fn>
VRAMSCOPE_NOINLINE Fn FindReal(std::atomic<Fn>* slot, const char* symbol) {
  // By its name first: searching the list of libraries takes a lock of the loader's that fork does
  // not reset, and in a child its holder may be gone.
  void* const library = ReferToLoaded("libc10.so");
  Fn const real = reinterpret_cast<Fn>(
      library != nullptr ? RealDlsym(library, symbol) : FindInLoadedLibrary("libc10.so", symbol));
  slot->store(real, std::memory_order_relaxed);
  return real;
}

template <class Fn>
VRAMSCOPE_ALWAYS_INLINE Fn Real(std::atomic<Fn>* slot, const char* symbol) {
  Fn const real = slot->load(std::memory_order_relaxed);
  return VRAMSCOPE_LIKELY(real != nullptr) ? real : FindReal(slot, symbol);
}

// Native stacks cost microseconds: on tensor events only where they were asked for.
VRAMSCOPE_ALWAYS_INLINE uint32_t NativeStackIfWanted(Stream& stream) {
  return VRAMSCOPE_UNLIKELY(g_flags.native) ? CaptureNativeStack(stream) : 0;
}

// On a GPU also where the first blocks of a kind are given out. The workspaces of cuBLAS and cuDNN
// are blocks like others, made once in the middle of an operation and kept. Only the native stack
// distinguishes them from the operation's output, which can have the same size.
VRAMSCOPE_ALWAYS_INLINE uint32_t NativeStackAtEarlySight(Stream& stream,
                                                         const PythonStack& stack,
                                                         const AutogradNode& node,
                                                         uint64_t size_bytes) {
  // Apart in the word: two pairs may not cancel each other out.
  const uint64_t place = HashMix(uint64_t{stack.id} << 32, reinterpret_cast<uintptr_t>(node.type));
  const bool early = stream.IsEarlySight(HashMix(place, size_bytes) | 1);
  return VRAMSCOPE_UNLIKELY(early || g_flags.native) ? CaptureNativeStack(stream) : 0;
}

constinit std::atomic<ReportFn> g_report{nullptr};
constinit std::atomic<ReportFn> g_report_signed{nullptr};
constinit std::atomic<ReportOomFn> g_report_oom{nullptr};
constinit std::atomic<AllocCpuFn> g_alloc_cpu{nullptr};
constinit std::atomic<FreeCpuFn> g_free_cpu{nullptr};

// If calls to the driver go unseen, only these totals show that the allocator took or gave back
// memory.
VRAMSCOPE_ALWAYS_INLINE void NoteTotals(Stream& stream,
                                        uint64_t now,
                                        int device,
                                        size_t allocated,
                                        size_t reserved) {
  const auto index = static_cast<unsigned>(device) & 15;
  uint32_t& countdown = stream.totals_countdown[index];
  if (VRAMSCOPE_UNLIKELY(countdown == 0 || (g_flags.late.load(std::memory_order_relaxed) &&
                                            stream.totals_reserved[index] != reserved))) {
    countdown = kTotalsEvery;
    stream.totals_reserved[index] = reserved;
    stream.Append(format::AllocatorTotals{
        .time = now, .device = device, .allocated = allocated, .reserved = reserved});
  }
  --countdown;
}

VRAMSCOPE_ALWAYS_INLINE void RecordBlock(void* pointer,
                                         uint64_t size,
                                         size_t allocated,
                                         size_t reserved,
                                         int device) {
  RecordScope scope(Want::kTensor);
  if (!scope)
    return;
  const uint64_t now = Now();
  const PythonStack stack = CapturePython(*scope);
  const AutogradNode node = CurrentAutogradNode(stack.id != 0);
  scope->Append(format::BlockAlloc{.time = now,
                                   .address = reinterpret_cast<uintptr_t>(pointer),
                                   .size = size,
                                   .device = device,
                                   .stack = stack.id,
                                   .native = NativeStackAtEarlySight(*scope, stack, node, size),
                                   .sequence = node.number});
  TorchObserveStack(stack, node);
  NoteTotals(*scope, now, device, allocated, reserved);
}

VRAMSCOPE_ALWAYS_INLINE void RecordBlockBack(void* pointer,
                                             uint64_t size,
                                             size_t allocated,
                                             size_t reserved,
                                             int device) {
  RecordScope scope(Want::kTensor);
  if (!scope)
    return;
  const uint64_t now = Now();
  scope->Append(format::BlockFree{.time = now,
                                  .address = reinterpret_cast<uintptr_t>(pointer),
                                  .size = size,
                                  .device = device});
  TorchObserveFree(pointer);
  NoteTotals(*scope, now, device, allocated, reserved);
}

VRAMSCOPE_ALWAYS_INLINE void RecordReport(void* pointer,
                                          int64_t size,
                                          size_t allocated,
                                          size_t reserved,
                                          uint16_t device) {
  if (static_cast<int8_t>(device & 0xff) != kDeviceTypeCuda)
    return;  // alloc_cpu covers the CPU
  const int index = static_cast<int8_t>(device >> 8);
  if (IsWatched(index) && size != 0) {
    WatchGpuBlock(index, pointer, size, static_cast<int64_t>(allocated),
                  static_cast<int64_t>(reserved));
  }
  if (size >= 0)
    RecordBlock(pointer, static_cast<uint64_t>(size), allocated, reserved, index);
  else
    RecordBlockBack(pointer, -static_cast<uint64_t>(size), allocated, reserved, index);
}

}  // namespace
}  // namespace vramscope::probe

using namespace vramscope::probe;
using namespace vramscope;

// c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, c10::Device)
VRAMSCOPE_EXPORT void vramscope_hook_report(void*, int64_t, size_t, size_t, uint16_t) __asm__(
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void vramscope_hook_report(void* pointer,
                           int64_t size,
                           size_t allocated,
                           size_t reserved,
                           uint16_t device) {
  RecordReport(pointer, size, allocated, reserved, device);
  if (auto* real = Real(&g_report, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")) {
    real(pointer, size, allocated, reserved, device);
  }
}

// The same before the totals became size_t.
VRAMSCOPE_EXPORT void vramscope_hook_report_signed(
    void*,
    int64_t,
    size_t,
    size_t,
    uint16_t) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE");
void vramscope_hook_report_signed(void* pointer,
                                  int64_t size,
                                  size_t allocated,
                                  size_t reserved,
                                  uint16_t device) {
  RecordReport(pointer, size, allocated, reserved, device);
  if (auto* real =
          Real(&g_report_signed, "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE")) {
    real(pointer, size, allocated, reserved, device);
  }
}

// c10::reportOutOfMemoryToProfiler(int64_t, size_t, size_t, c10::Device)
VRAMSCOPE_EXPORT void vramscope_hook_report_oom(int64_t, size_t, size_t, uint16_t) __asm__(
    "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
void vramscope_hook_report_oom(int64_t size, size_t allocated, size_t reserved, uint16_t device) {
  if (RecordScope scope(Want::kAlways); scope) {
    scope->Append(format::OutOfMemory{.time = Now(),
                                      .device = static_cast<int8_t>(device >> 8),
                                      .requested = static_cast<uint64_t>(size),
                                      .allocated = allocated,
                                      .reserved = reserved,
                                      .stack = CapturePythonStack(*scope)});
    CountRefusal(Refusal::kGivenUp);
  }
  const bool has_names = TorchObserveRefusal();
  if (auto* real = Real(&g_report_oom, "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE")) {
    real(size, allocated, reserved, device);
  }
  if (has_names)
    AwaitReport();
}

// c10::alloc_cpu(size_t). libc10 itself calls it through its PLT.
VRAMSCOPE_EXPORT void* vramscope_hook_alloc_cpu(size_t) __asm__("_ZN3c109alloc_cpuEm");
void* vramscope_hook_alloc_cpu(size_t size) {
  auto* real = Real(&g_alloc_cpu, "_ZN3c109alloc_cpuEm");
  if (real == nullptr)
    return nullptr;
  void* const pointer = real(size);
  if (VRAMSCOPE_UNLIKELY(pointer == nullptr))
    return pointer;
  if (IsWatched(kWatchedCpu))
    WatchCpuAlloc(pointer, static_cast<int64_t>(size));
  if (!WantsCpuTensors())
    return pointer;
  if (VRAMSCOPE_UNLIKELY(g_flags.paused.load(std::memory_order_relaxed))) {
    SessionCountPausedBytes(static_cast<int64_t>(malloc_usable_size(pointer)));
    return pointer;
  }
  if (RecordScope scope(Want::kAlways); scope) {
    const uint64_t now = Now();
    const PythonStack stack = CapturePython(*scope);
    const AutogradNode node = CurrentAutogradNode(stack.id != 0);
    scope->Append(format::BlockAlloc{.time = now,
                                     .address = reinterpret_cast<uintptr_t>(pointer),
                                     .size = size,
                                     .device = format::kCpuDevice,
                                     .stack = stack.id,
                                     .native = NativeStackIfWanted(*scope),
                                     .sequence = node.number});
    TorchObserveStack(stack, node);
  }
  return pointer;
}

// c10::free_cpu(void*)
VRAMSCOPE_EXPORT void vramscope_hook_free_cpu(void*) __asm__("_ZN3c108free_cpuEPv");
void vramscope_hook_free_cpu(void* pointer) {
  auto* real = Real(&g_free_cpu, "_ZN3c108free_cpuEPv");
  if (VRAMSCOPE_UNLIKELY(pointer == nullptr))
    return real != nullptr ? real(pointer) : void();
  if (IsWatched(kWatchedCpu))
    WatchCpuFree(pointer);
  if (WantsCpuTensors()) {
    if (VRAMSCOPE_UNLIKELY(g_flags.paused.load(std::memory_order_relaxed))) {
      SessionCountPausedBytes(-static_cast<int64_t>(malloc_usable_size(pointer)));
    } else if (RecordScope scope(Want::kAlways); scope) {
      // The size is only of use where the allocation may not have been seen.
      const size_t size = VRAMSCOPE_UNLIKELY(g_flags.was_paused.load(std::memory_order_relaxed))
                              ? malloc_usable_size(pointer)
                              : 0;
      scope->Append(format::BlockFree{.time = Now(),
                                      .address = reinterpret_cast<uintptr_t>(pointer),
                                      .size = size,
                                      .device = format::kCpuDevice});
      TorchObserveFree(pointer);
    }
  }
  if (real != nullptr)
    real(pointer);
}

// The hooks under names of their own: the address of an exported function can be that of another
// library's function of this name.
#define VRAMSCOPE_LOCAL(name, hook, symbol) \
  extern "C" __attribute__((visibility("hidden"), alias(symbol))) decltype(hook) name
VRAMSCOPE_LOCAL(vramscope_local_report,
                vramscope_hook_report,
                "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
VRAMSCOPE_LOCAL(vramscope_local_report_signed,
                vramscope_hook_report_signed,
                "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE");
VRAMSCOPE_LOCAL(vramscope_local_report_oom,
                vramscope_hook_report_oom,
                "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
VRAMSCOPE_LOCAL(vramscope_local_alloc_cpu, vramscope_hook_alloc_cpu, "_ZN3c109alloc_cpuEm");
VRAMSCOPE_LOCAL(vramscope_local_free_cpu, vramscope_hook_free_cpu, "_ZN3c108free_cpuEPv");

namespace vramscope::probe {

namespace {

void PlanImports(ImportPlan* plan) {
  const auto add = [plan](const char* symbol, auto* hook) {
    // The hook must have something to call.
    if (FindInLoadedLibrary("libc10.so", symbol) != nullptr)
      plan->Add(symbol, nullptr, reinterpret_cast<void*>(hook));
  };
  add("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", &vramscope_local_report);
  add("_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE", &vramscope_local_report_signed);
  add("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE", &vramscope_local_report_oom);
  add("_ZN3c109alloc_cpuEm", &vramscope_local_alloc_cpu);
  add("_ZN3c108free_cpuEPv", &vramscope_local_free_cpu);
}

}  // namespace

const Source kC10Source = {.plan_imports = PlanImports, .forked = WatchForked};

}  // namespace vramscope::probe
