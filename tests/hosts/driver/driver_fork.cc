// SPDX-License-Identifier: Apache-2.0
// CUDA is of no use in a forked child of a process that uses it. A child that was forked earlier
// has its own.
#include <sys/wait.h>

#include "cuda_driver.h"

namespace {

int UseDriver(size_t size, CUresult expected) {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  CUdeviceptr address = 0;
  CUcontext context = nullptr;
  REQUIRE(cuInit(0) == expected);
  REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == expected);
  REQUIRE(cuCtxSetCurrent(context) == expected);
  REQUIRE(cuMemAlloc_v2(&address, size) == expected);
  return 0;
}

int RunChild(size_t size, CUresult expected) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0)
    _exit(UseDriver(size, expected));
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

int main() {
  constexpr CUresult kNotInitialised = 3;
  REQUIRE(RunChild(3u << 20, kSuccess) == 0);
  REQUIRE(UseDriver(5u << 20, kSuccess) == 0);
  REQUIRE(RunChild(7u << 20, kNotInitialised) == 0);
  return UseDriver(9u << 20, kSuccess);
}
