// SPDX-License-Identifier: Apache-2.0
// A machine without a driver: programs must still be able to detect that.
#include "cuda_driver.h"

int main() {
  REQUIRE(dlopen("libcuda.so.1", RTLD_NOW) == nullptr);
  REQUIRE(dlerror() != nullptr);
  // A weakly linked program finds the probe's wrapper, which has no real function to call.
  if (void* const init = dlsym(RTLD_DEFAULT, "cuInit"))
    REQUIRE(reinterpret_cast<HookTraits<HookId::cuInit>::Function*>(init)(0) == kNoDeviceError);
  return 0;
}
