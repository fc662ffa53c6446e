// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: the default pool grows and gives back at a synchronisation, a pool of the
// program's own keeps what it has, and allocations that are captured belong to the graph.
#include <unistd.h>

#include "cuda_driver.h"

int main() {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuStreamCreate);
  DRIVER_HOOK(driver, cuStreamSynchronize);
  DRIVER_HOOK(driver, cuMemAllocAsync);
  DRIVER_HOOK(driver, cuMemFreeAsync);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  DRIVER_HOOK(driver, cuMemFree_v2);
  DRIVER_HOOK(driver, cuMemAllocFromPoolAsync);
  DRIVER_HOOK(driver, cuMemPoolCreate);
  DRIVER_HOOK(driver, cuMemPoolTrimTo);
  DRIVER_HOOK(driver, cuMemPoolDestroy);
  DRIVER_HOOK(driver, cuStreamBeginCapture_v2);
  DRIVER_HOOK(driver, cuStreamEndCapture);
  DRIVER_HOOK(driver, cuGraphInstantiateWithFlags);
  DRIVER_HOOK(driver, cuGraphLaunch);
  DRIVER_HOOK(driver, cuGraphExecDestroy);
  DRIVER_HOOK(driver, cuDeviceGraphMemTrim);
  auto* const set_attribute = reinterpret_cast<CUresult (*)(CUmemoryPool, int, void*)>(
      dlsym(driver, "cuMemPoolSetAttribute"));
  REQUIRE(set_attribute != nullptr);

  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuStreamCreate(&stream, 1));

  CUdeviceptr first = 0, second = 0;
  CHECK(cuMemAllocAsync(&first, 1, stream));
  CHECK(cuMemAllocAsync(&second, 100u << 20, stream));
  CHECK(cuMemFreeAsync(second, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemFreeAsync(first, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuStreamSynchronize(stream));

  CUmemPoolProps properties{};
  properties.allocType = 1;
  properties.location = {kLocationDevice, 0};
  CUmemoryPool pool = nullptr;
  uint64_t keep_all = ~uint64_t{0};
  CHECK(cuMemPoolCreate(&pool, &properties));
  CHECK(set_attribute(pool, 4, &keep_all));
  CHECK(cuMemAllocFromPoolAsync(&first, 50u << 20, pool, stream));
  CHECK(cuMemFreeAsync(first, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemPoolTrimTo(pool, 0));
  CHECK(cuMemPoolDestroy(pool));

  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUstream other = nullptr;
  CHECK(cuStreamBeginCapture_v2(stream, 0));
  CHECK(cuStreamCreate(&other, 1));
  CHECK(cuMemAllocAsync(&first, 64u << 20, stream));
  CHECK(cuMemFreeAsync(first, stream));
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0));
  for (int i = 0; i < 3; ++i)
    CHECK(cuGraphLaunch(executable, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuDeviceGraphMemTrim(0));
  CHECK(cuGraphExecDestroy(executable));

  // A pool that is created and destroyed while nothing can be queried.
  CHECK(cuMemAlloc_v2(&second, 2u << 20));
  CHECK(cuStreamBeginCapture_v2(stream, 0));
  CHECK(cuMemAllocAsync(&first, 20u << 20, other));
  CHECK(cuMemFree_v2(first));
  CHECK(cuMemFree_v2(second));
  usleep(1000);
  CHECK(cuStreamEndCapture(stream, &graph));
  return 0;
}
