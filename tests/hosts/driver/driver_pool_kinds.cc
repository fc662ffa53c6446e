// SPDX-License-Identifier: Apache-2.0
// Pools of every kind: several on two devices, one that is current in the default's place, host
// and managed ones, thresholds set and lowered, trims, every call that synchronises, frees by the
// other family's call, destruction with blocks still out, and more pools than a small table holds.
#include <vector>

#include "steps.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kReleaseThreshold = 4;

CUmemPoolProps On(int type, int location_type, int id) {
  CUmemPoolProps properties{};
  properties.allocType = type;
  properties.location = {location_type, id};
  return properties;
}

}  // namespace

int main() {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxReset_v2);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuStreamCreate);
  DRIVER_HOOK(driver, cuStreamSynchronize);
  DRIVER_HOOK(driver, cuStreamQuery);
  DRIVER_HOOK(driver, cuEventQuery);
  DRIVER_HOOK(driver, cuMemcpyDtoH_v2);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  DRIVER_HOOK(driver, cuMemFree_v2);
  DRIVER_HOOK(driver, cuMemAllocAsync);
  DRIVER_HOOK(driver, cuMemFreeAsync);
  DRIVER_HOOK(driver, cuMemAllocFromPoolAsync);
  DRIVER_HOOK(driver, cuMemPoolCreate);
  DRIVER_HOOK(driver, cuMemPoolTrimTo);
  DRIVER_HOOK(driver, cuMemPoolDestroy);
  DRIVER_HOOK(driver, cuMemPoolSetAttribute);
  DRIVER_HOOK(driver, cuMemGetDefaultMemPool);
  auto* const set_pool =
      reinterpret_cast<CUresult (*)(CUdevice, CUmemoryPool)>(dlsym(driver, "cuDeviceSetMemPool"));
  REQUIRE(set_pool != nullptr);

  CHECK(cuInit(0));
  CUcontext contexts[2] = {};
  CUstream streams[2] = {};
  for (int device = 1; device >= 0; --device) {
    CHECK(cuDevicePrimaryCtxRetain(&contexts[device], device));
    CHECK(cuCtxSetCurrent(contexts[device]));
    CHECK(cuStreamCreate(&streams[device], 1));
  }
  CUstream stream = streams[0];
  CUdeviceptr first = 0, second = 0, third = 0;

  // The default pool; each kind of call that waits lets it shrink.
  const auto grow = [&] {
    CHECK(cuMemAllocAsync(&second, 100 * kMiB, stream));
    CHECK(cuMemFreeAsync(second, stream));
  };
  CHECK(cuMemAllocAsync(&first, 1, stream));
  Step("default");
  grow();
  Step("grown");
  CHECK(cuStreamQuery(stream));
  Step("stream-query");
  grow();
  CUevent event = reinterpret_cast<CUevent>(stream);
  CHECK(cuEventQuery(event));
  Step("event-query");
  grow();
  char byte = 0;
  CHECK(cuMemcpyDtoH_v2(&byte, first, 1));
  Step("copy");
  grow();
  CHECK(cuMemAlloc_v2(&third, 3 * kMiB));
  CHECK(cuMemFree_v2(third));
  Step("free-synchronises");

  // The threshold keeps memory until it is lowered.
  CUmemoryPool pool = nullptr;
  const CUmemPoolProps on_first = On(1, kLocationDevice, 0);
  CHECK(cuMemPoolCreate(&pool, &on_first));
  uint64_t threshold = ~uint64_t{0};
  CHECK(cuMemPoolSetAttribute(pool, kReleaseThreshold, &threshold));
  CHECK(cuMemAllocFromPoolAsync(&second, 70 * kMiB, pool, stream));
  CHECK(cuMemFreeAsync(second, stream));
  CHECK(cuStreamSynchronize(stream));
  Step("kept");
  threshold = 40 * kMiB;
  CHECK(cuMemPoolSetAttribute(pool, kReleaseThreshold, &threshold));
  Step("lowered");
  CHECK(cuStreamSynchronize(stream));
  Step("shrunk");
  CHECK(cuMemPoolTrimTo(pool, 0));
  Step("trimmed");

  // Current in the default pool's place, freed by cuMemFree; a block of cuMemAlloc freed in order
  // of a stream.
  CHECK(set_pool(0, pool));
  CHECK(cuMemAllocAsync(&second, 33 * kMiB, stream));
  Step("current");
  CHECK(cuMemFree_v2(second));
  CHECK(cuStreamSynchronize(stream));
  Step("freed-by-other");
  CHECK(cuMemAlloc_v2(&third, 5 * kMiB));
  CHECK(cuMemFreeAsync(third, stream));
  Step("freed-in-order");

  // Destroyed with a block out: its memory goes with that.
  CHECK(cuMemAllocFromPoolAsync(&second, 90 * kMiB, pool, stream));
  CHECK(cuMemPoolDestroy(pool));
  Step("destroyed");
  CHECK(cuMemFreeAsync(second, stream));
  CHECK(cuStreamSynchronize(stream));
  Step("last-block");
  CHECK(cuMemPoolCreate(&pool, &on_first));
  threshold = ~uint64_t{0};
  CHECK(cuMemPoolSetAttribute(pool, kReleaseThreshold, &threshold));
  CHECK(cuMemAllocFromPoolAsync(&second, 90 * kMiB, pool, stream));
  CHECK(cuMemFreeAsync(second, stream));
  CHECK(cuMemPoolDestroy(pool));
  Step("destroyed-full");

  // A pool of the other device than the current context's, and the other device's stream.
  const CUmemPoolProps on_second = On(1, kLocationDevice, 1);
  CHECK(cuMemPoolCreate(&pool, &on_second));
  CHECK(cuMemAllocFromPoolAsync(&second, 10 * kMiB, pool, streams[1]));
  Step("other-device");
  CHECK(cuMemAllocAsync(&third, 40 * kMiB, streams[1]));
  Step("other-stream");

  // Host and managed pools take nothing of a device.
  CUmemoryPool host = nullptr, managed = nullptr, shared = nullptr;
  const CUmemPoolProps on_host = On(1, 3, 0), of_managed = On(kAllocationManaged, kLocationNone, 0);
  CHECK(cuMemPoolCreate(&host, &on_host));
  CHECK(cuMemPoolCreate(&managed, &of_managed));
  CUmemLocation location{kLocationDevice, 0};
  CHECK(cuMemGetDefaultMemPool(&shared, &location, kAllocationManaged));
  CUdeviceptr on_the_host = 0, in_managed = 0, in_shared = 0;
  CHECK(cuMemAllocFromPoolAsync(&on_the_host, 20 * kMiB, host, stream));
  CHECK(cuMemAllocFromPoolAsync(&in_managed, 20 * kMiB, managed, stream));
  CHECK(cuMemAllocFromPoolAsync(&in_shared, 20 * kMiB, shared, stream));
  Step("host-and-managed");
  CHECK(cuMemFreeAsync(in_managed, stream));
  CHECK(cuMemFreeAsync(on_the_host, stream));
  CHECK(cuStreamSynchronize(stream));
  Step("host-freed");

  // Many pools at once.
  std::vector<CUmemoryPool> pools(200);
  std::vector<CUdeviceptr> blocks(pools.size());
  for (size_t i = 0; i < pools.size(); ++i) {
    CHECK(cuMemPoolCreate(&pools[i], &on_first));
    CHECK(cuMemAllocFromPoolAsync(&blocks[i], 2 * kMiB, pools[i], stream));
  }
  Step("many");
  for (const CUdeviceptr block : blocks)
    CHECK(cuMemFreeAsync(block, stream));
  CHECK(cuStreamSynchronize(stream));
  Step("many-freed");
  for (CUmemoryPool many : pools)
    CHECK(cuMemPoolDestroy(many));

  CHECK(cuDevicePrimaryCtxReset_v2(0));
  Step("reset");
  CHECK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
  CHECK(cuCtxSetCurrent(contexts[0]));
  Step("again");
  CHECK(cuMemAllocAsync(&first, 50 * kMiB, nullptr));
  Step("after-reset");
  return 0;
}
