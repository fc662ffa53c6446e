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

int DeviceOf(const CUmemLocation& location) {
  return location.type == kLocationDevice ? location.id : format::kNoDevice;
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

VRAMSCOPE_CUDA_WRAPPER(cuMemPrefetchAsync)
(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
  return MovePages<HookId::cuMemPrefetchAsync>(device, address, bytes, device, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemPrefetchAsync_ptsz)
(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
  return MovePages<HookId::cuMemPrefetchAsync_ptsz>(device, address, bytes, device, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemPrefetchAsync_v2)
(CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned int flags, CUstream stream) {
  return MovePages<HookId::cuMemPrefetchAsync_v2>(DeviceOf(to), address, bytes, to, flags, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemPrefetchAsync_v2_ptsz)
(CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned int flags, CUstream stream) {
  return MovePages<HookId::cuMemPrefetchAsync_v2_ptsz>(DeviceOf(to), address, bytes, to, flags,
                                                       stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemAdvise)
(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
  return MovePages<HookId::cuMemAdvise>(device, address, bytes, advice, device);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemAdvise_v2)
(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation where) {
  return MovePages<HookId::cuMemAdvise_v2>(DeviceOf(where), address, bytes, advice, where);
}

}  // namespace vramscope::probe::cuda
