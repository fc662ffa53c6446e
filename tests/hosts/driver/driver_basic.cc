// SPDX-License-Identifier: Apache-2.0
// Every kind of allocation once, through dlopen and dlsym, and code that allocates memory
// implicitly.
#include <cstdint>

#include "cuda_driver.h"

namespace {

constexpr char kImage[] =
    "FAKE code=3145728 global=67108864 kernel=plain:0:0 kernel=spill:65536:0 "
    "kernel=lazy:0:4194304";

void Launch(HookTraits<HookId::cuLaunchKernel>::Function* launch, CUfunction function) {
  CHECK(launch(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
}

}  // namespace

int main() {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRelease_v2);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  DRIVER_HOOK(driver, cuMemAlloc);
  DRIVER_HOOK(driver, cuMemAllocPitch_v2);
  DRIVER_HOOK(driver, cuMemAllocManaged);
  DRIVER_HOOK(driver, cuMemFree_v2);
  DRIVER_HOOK(driver, cuMemFree);
  DRIVER_HOOK(driver, cuMemHostAlloc);
  DRIVER_HOOK(driver, cuMemFreeHost);
  DRIVER_HOOK(driver, cuArrayCreate_v2);
  DRIVER_HOOK(driver, cuArrayDestroy);
  DRIVER_HOOK(driver, cuModuleLoadData);
  DRIVER_HOOK(driver, cuModuleGetFunction);
  DRIVER_HOOK(driver, cuModuleUnload);
  DRIVER_HOOK(driver, cuLaunchKernel);
  DRIVER_HOOK(driver, cuCtxSetLimit);
  DRIVER_HOOK(driver, cuStreamCreate);

  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));

  CUdeviceptr small = 0, large = 0, pitched = 0, managed = 0;
  CUdeviceptr_v1 low = 0;
  size_t pitch = 0;
  void* host = nullptr;
  CUarray array = nullptr;
  CHECK(cuMemAlloc_v2(&small, 4096));
  CHECK(cuMemAlloc_v2(&large, 64u << 20));
  CHECK(cuMemAlloc(&low, 1000));
  CHECK(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 2000, 4));
  CHECK(cuMemAllocManaged(&managed, 1u << 20, 1));
  CHECK(cuMemHostAlloc(&host, 1u << 20, 0));
  const CUDA_ARRAY_DESCRIPTOR shape{1024, 1024, 0x20, 4};
  CHECK(cuArrayCreate_v2(&array, &shape));
  REQUIRE(cuMemAlloc_v2(&small, uint64_t{1} << 50) == 2);

  CUmodule module = nullptr;
  CUfunction plain = nullptr, spill = nullptr, lazy = nullptr;
  CHECK(cuModuleLoadData(&module, kImage));
  CHECK(cuModuleGetFunction(&plain, module, "plain"));
  CHECK(cuModuleGetFunction(&spill, module, "spill"));
  CHECK(cuModuleGetFunction(&lazy, module, "lazy"));
  for (int i = 0; i < 3; ++i) {
    Launch(cuLaunchKernel, plain);
    Launch(cuLaunchKernel, spill);
    Launch(cuLaunchKernel, lazy);
  }
  CHECK(cuCtxSetLimit(0, 1024));
  for (int i = 0; i < 3; ++i) {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, 0));
  }
  CHECK(cuModuleUnload(module));

  CHECK(cuMemFree_v2(large));
  CHECK(cuMemFree(low));
  CHECK(cuMemFree_v2(pitched));
  CHECK(cuMemFree_v2(managed));
  CHECK(cuMemFreeHost(host));
  CHECK(cuArrayDestroy(array));
  CHECK(cuDevicePrimaryCtxRelease_v2(0));
  return 0;
}
