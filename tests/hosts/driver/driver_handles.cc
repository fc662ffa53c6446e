// SPDX-License-Identifier: Apache-2.0
// Handles of every kind: one mapped twice and released before, one on the host, one retained by its
// address, and a multicast object, which has no memory of its own.
#include "steps.h"

int main() {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAddressReserve);
  DRIVER_HOOK(driver, cuMemCreate);
  DRIVER_HOOK(driver, cuMemMap);
  DRIVER_HOOK(driver, cuMemUnmap);
  DRIVER_HOOK(driver, cuMemRelease);
  DRIVER_HOOK(driver, cuMemRetainAllocationHandle);
  DRIVER_HOOK(driver, cuMulticastCreate);
  DRIVER_HOOK(driver, cuMulticastAddDevice);
  DRIVER_HOOK(driver, cuMulticastBindMem);
  DRIVER_HOOK(driver, cuMulticastUnbind);

  constexpr size_t kSize = 20u << 20;
  constexpr int kHostNuma = 3;
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CUdeviceptr base = 0;
  CHECK(cuMemAddressReserve(&base, 8 * kSize, 0, 0, 0));

  CUmemAllocationProp properties{};
  properties.type = 1;
  properties.location = {kLocationDevice, 0};
  CUmemGenericAllocationHandle twice = 0, host = 0, retained = 0, group = 0;
  CHECK(cuMemCreate(&twice, kSize, &properties, 0));
  Step("created");
  CHECK(cuMemMap(base, kSize, 0, twice, 0));
  CHECK(cuMemMap(base + kSize, kSize, 0, twice, 0));
  CHECK(cuMemRelease(twice));
  Step("mapped-twice");
  CHECK(cuMemUnmap(base, kSize));
  Step("mapped-once");
  CHECK(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(base + kSize)));
  CHECK(cuMemUnmap(base + kSize, kSize));
  Step("retained");
  CHECK(cuMemRelease(retained));
  Step("gone");

  properties.location = {kHostNuma, 0};
  CHECK(cuMemCreate(&host, kSize, &properties, 0));
  CHECK(cuMemMap(base, kSize, 0, host, 0));
  Step("on-the-host");

  properties.location = {kLocationDevice, 0};
  CUmemGenericAllocationHandle bound = 0;
  CHECK(cuMemCreate(&bound, kSize, &properties, 0));
  CHECK(cuMulticastCreate(&group, nullptr));
  CHECK(cuMulticastAddDevice(group, 0));
  CHECK(cuMulticastBindMem(group, 0, bound, 0, kSize, 0));
  CHECK(cuMemMap(base + 2 * kSize, kSize, 0, group, 0));
  Step("multicast");
  CHECK(cuMemUnmap(base + 2 * kSize, kSize));
  CHECK(cuMulticastUnbind(group, 0, 0, kSize));
  CHECK(cuMemRelease(group));
  CHECK(cuMemRelease(bound));
  CHECK(cuMemUnmap(base, kSize));
  CHECK(cuMemRelease(host));
  Step("released");
  return 0;
}
