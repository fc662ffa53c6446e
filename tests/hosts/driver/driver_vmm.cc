// SPDX-License-Identifier: Apache-2.0
// Physical memory and addresses apart, as PyTorch's expandable segments use them: a handle released
// while it is mapped, one retained by address, one never mapped.
#include "cuda_driver.h"

int main() {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAddressReserve);
  DRIVER_HOOK(driver, cuMemAddressFree);
  DRIVER_HOOK(driver, cuMemCreate);
  DRIVER_HOOK(driver, cuMemMap);
  DRIVER_HOOK(driver, cuMemUnmap);
  DRIVER_HOOK(driver, cuMemRelease);
  DRIVER_HOOK(driver, cuMemRetainAllocationHandle);

  constexpr size_t kSegment = 20u << 20;
  constexpr size_t kReserved = size_t{1} << 40;
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CUdeviceptr base = 0;
  CHECK(cuMemAddressReserve(&base, kReserved, 0, 0, 0));
  CUmemAllocationProp properties{};
  properties.type = 1;
  properties.location = {kLocationDevice, 0};
  CUmemGenericAllocationHandle handles[3];
  for (auto& handle : handles)
    CHECK(cuMemCreate(&handle, kSegment, &properties, 0));
  CHECK(cuMemMap(base, kSegment, 0, handles[0], 0));
  CHECK(cuMemMap(base + kSegment, kSegment, 0, handles[1], 0));
  CHECK(cuMemRelease(handles[0]));
  CHECK(cuMemRelease(handles[1]));
  CUmemGenericAllocationHandle retained = 0;
  CHECK(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(base + kSegment)));
  REQUIRE(retained == handles[1]);
  CHECK(cuMemUnmap(base, 2 * kSegment));
  CHECK(cuMemRelease(retained));
  CHECK(cuMemAddressFree(base, kReserved));
  return 0;  // handles[2] is never mapped and never released
}
