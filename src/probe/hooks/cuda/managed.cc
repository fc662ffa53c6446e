// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/managed.h"

#include <cstdint>

#include "base/clock.h"
#include "format/enums.h"
#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/reading.h"

namespace vramscope::probe::cuda {

constinit std::atomic<bool> g_has_managed{false};

namespace {

constexpr int64_t kReadEveryNs = 10'000'000;
constinit std::atomic<int64_t> g_read_ns{0};

// It only begins to move pages: the next call that synchronises is read too. Of another device than
// the current one nothing can be read before that is current.
template <HookId kId, class... Args>
CUresult MovePages(int device, Args... args) {
  const CUresult result = CallEstimated<kId>(
      format::ImplicitKind::kManaged, WriteWhen::kMoved, [] { return Subject{}; }, args...);
  if (result == kSuccess && device >= 0 && IsRecording() && CurrentPlace().device != device)
    RequestReading(device);
  return result;
}

int DeviceOf(CUdevice device) {
  return device;
}

int DeviceOf(const CUmemLocation& location) {
  return location.type == kLocationDevice ? location.id : format::kNoDevice;
}

template <HookId kId, class Target, class... Args>
CUresult PrefetchPages(CUdeviceptr address, size_t bytes, Target to, Args... args) {
  return MovePages<kId>(DeviceOf(to), address, bytes, to, args...);
}

template <HookId kId, class Target>
CUresult AdvisePages(CUdeviceptr address, size_t bytes, CUmem_advise advice, Target where) {
  return MovePages<kId>(DeviceOf(where), address, bytes, advice, where);
}

}  // namespace

void ReadPagesAfterSynchronisation() {
  const int64_t now_ns = base::MonotonicNs();
  int64_t last_ns = g_read_ns.load(std::memory_order_relaxed);
  if (now_ns - last_ns < kReadEveryNs ||
      !g_read_ns.compare_exchange_strong(last_ns, now_ns, std::memory_order_relaxed))
    return;
  const Place place = CurrentPlace();
  if (place.device >= 0)
    TakeNews(place);
}

}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_MANAGED 1
#include "probe/hooks/cuda/define_wrappers.h"
