// SPDX-License-Identifier: Apache-2.0
// A library whose constructor uses the driver before the constructor of anything preloaded runs.
#include "cuda_driver.h"

namespace {

__attribute__((constructor)) void Begin() {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CUdeviceptr address = 0;
  CHECK(cuMemAlloc_v2(&address, 3u << 20));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int EarlyAllocate(unsigned long long bytes) {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  CUdeviceptr address = 0;
  return cuMemAlloc_v2(&address, bytes);
}
