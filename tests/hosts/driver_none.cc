// SPDX-License-Identifier: Apache-2.0
// A machine without a driver: what programs do to find that out has to go on working.
#include "cuda_driver.h"

int main() {
  REQUIRE(dlopen("libcuda.so.1", RTLD_NOW) == nullptr);
  REQUIRE(dlerror() != nullptr);
  // A program that was linked weakly finds the probe's wrapper, which has nothing behind it.
  if (void* const init = dlsym(RTLD_DEFAULT, "cuInit"))
    REQUIRE(reinterpret_cast<HookTraits<HookId::cuInit>::Function*>(init)(0) == kNoDeviceError);
  return 0;
}
