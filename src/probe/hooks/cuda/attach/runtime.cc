// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "format/records.h"
#include "probe/hooks/cuda/attach/attach.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/platform/dynamic.h"
#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

namespace vramscope::probe::cuda {
namespace {

using RuntimeError = int;  // cudaError_t
constexpr RuntimeError kRuntimeSuccess = 0;

using MallocFn = RuntimeError (*)(void**, size_t);
using FreeFn = RuntimeError (*)(void*);
using EntryPointFn = RuntimeError (*)(const char*, void**, unsigned long long, int*);
using EntryPointByVersionFn =
    RuntimeError (*)(const char*, void**, unsigned int, unsigned long long, int*);

// Set before the first slot leads here.
constinit std::atomic<MallocFn> g_malloc{nullptr};
constinit std::atomic<FreeFn> g_free{nullptr};
constinit std::atomic<EntryPointFn> g_entry_point{nullptr};
constinit std::atomic<EntryPointByVersionFn> g_entry_point_by_version{nullptr};

RuntimeError Malloc(void** pointer, size_t size) {
  MallocFn const real = g_malloc.load(std::memory_order_relaxed);
  const uint32_t recorded = t_recorded;
  const uint64_t begin = Now();
  const RuntimeError result = real(pointer, size);
  if (result != kRuntimeSuccess || size == 0 || !IsRecording() || t_recorded != recorded)
    return result;
  const uint64_t end = Now();
  const Place place = CurrentPlace();
  if (RecordScope scope(Want::kAlways); scope) {
    scope->Append(format::Alloc{.begin = begin,
                                .end = end,
                                .api = scope->InternLiteral("cudaMalloc"),
                                .kind = static_cast<uint64_t>(format::MemoryKind::kDevice),
                                .device = place.device,
                                .context = Bits(place.context),
                                .address = reinterpret_cast<uintptr_t>(*pointer),
                                .size = size,
                                .stack = CapturePythonStack(*scope),
                                .native = CaptureNativeStack(*scope)});
  }
  return result;
}

RuntimeError Free(void* pointer) {
  FreeFn const real = g_free.load(std::memory_order_relaxed);
  const uint32_t recorded = t_recorded;
  const uint64_t begin = Now();
  const RuntimeError result = real(pointer);
  if (result != kRuntimeSuccess || pointer == nullptr || !IsRecording() || t_recorded != recorded)
    return result;
  const uint64_t end = Now();
  if (RecordScope scope(Want::kAlways); scope) {
    scope->Append(format::Free{.begin = begin,
                               .end = end,
                               .api = scope->InternLiteral("cudaFree"),
                               .kind = static_cast<uint64_t>(format::MemoryKind::kDevice),
                               .address = reinterpret_cast<uintptr_t>(pointer)});
  }
  return result;
}

// Pointers into the driver that the allocator fetches for itself, for expandable segments.
RuntimeError EntryPoint(const char* symbol,
                        void** function,
                        unsigned long long flags,
                        int* status) {
  const RuntimeError result =
      g_entry_point.load(std::memory_order_relaxed)(symbol, function, flags, status);
  if (result == kRuntimeSuccess)
    PutWrapper(function);
  return result;
}

RuntimeError EntryPointByVersion(const char* symbol,
                                 void** function,
                                 unsigned int version,
                                 unsigned long long flags,
                                 int* status) {
  const RuntimeError result = g_entry_point_by_version.load(std::memory_order_relaxed)(
      symbol, function, version, flags, status);
  if (result == kRuntimeSuccess)
    PutWrapper(function);
  return result;
}

template <class Fn>
void PlanImport(ImportPlan* plan, const char* symbol, std::atomic<Fn>* real, Fn wrapper) {
  if (real->load(std::memory_order_relaxed) == nullptr) {
    real->store(reinterpret_cast<Fn>(FindInLoadedLibrary("libcudart.so", symbol)),
                std::memory_order_release);
  }
  if (real->load(std::memory_order_relaxed) != nullptr)
    plan->Add(symbol, "libc10_cuda", reinterpret_cast<void*>(wrapper));
}

}  // namespace

void PlanRuntimeImports(ImportPlan* plan) {
  PlanImport(plan, "cudaMalloc", &g_malloc, &Malloc);
  PlanImport(plan, "cudaFree", &g_free, &Free);
  PlanImport(plan, "cudaGetDriverEntryPoint", &g_entry_point, &EntryPoint);
  PlanImport(plan, "cudaGetDriverEntryPointByVersion", &g_entry_point_by_version,
             &EntryPointByVersion);
}

}  // namespace vramscope::probe::cuda
