// SPDX-License-Identifier: Apache-2.0
// A pool of the program's own on two devices, which gives and takes blocks of the one while the
// other is current, and a named pool of the driver.
#include <vramscope/annotate.h>

#include "cuda_driver.h"

namespace {

const void* At(CUdeviceptr address) {
  return reinterpret_cast<const void*>(address);
}

}  // namespace

int main() {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  DRIVER_HOOK(driver, cuMemFree_v2);
  DRIVER_HOOK(driver, cuMemPoolCreate);
  // Before any device is in use, and with memory on no device.
  vramscope_annotate_block_alloc(&driver, 8, 8, "no device");
  vramscope_annotate_block_alloc(nullptr, 8, 8, "null");
  vramscope_annotate_block_free(nullptr);

  CHECK(cuInit(0));
  CUcontext contexts[2] = {};
  CUdeviceptr slabs[2] = {};
  for (int device = 0; device < 2; ++device) {
    CHECK(cuDevicePrimaryCtxRetain(&contexts[device], device));
    CHECK(cuCtxSetCurrent(contexts[device]));
    CHECK(cuMemAlloc_v2(&slabs[device], 4 << 20));
  }
  CHECK(cuCtxSetCurrent(contexts[1]));
  vramscope_annotate_block_alloc(At(slabs[0] + 4096), 8192, 5000, "on the first");
  vramscope_annotate_block_alloc(At(slabs[1]), 8192, 0, nullptr);
  CHECK(cuCtxSetCurrent(contexts[0]));
  vramscope_annotate_block_free(At(slabs[1]));
  CHECK(cuCtxSetCurrent(nullptr));
  vramscope_annotate_block_free(At(slabs[0] + 4096));

  CUmemPoolProps properties{};
  properties.allocType = 1;
  properties.location = {kLocationDevice, 0};
  CUmemoryPool pool = nullptr;
  CHECK(cuMemPoolCreate(&pool, &properties));
  vramscope_annotate_name_pool(pool, "scratch");
  vramscope_annotate_name_pool(nullptr, "null");
  vramscope_annotate_name_pool(pool, nullptr);
  for (int device = 0; device < 2; ++device) {
    CHECK(cuCtxSetCurrent(contexts[device]));
    CHECK(cuMemFree_v2(slabs[device]));
  }
  return 0;
}
