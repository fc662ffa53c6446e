// SPDX-License-Identifier: Apache-2.0
// Linked with libcuda.so.1, as Triton's launchers are: its calls are bound before anything is
// opened by hand.
#include "cuda_driver.h"

extern "C" {
HookTraits<HookId::cuInit>::Function cuInit;
HookTraits<HookId::cuCtxCreate_v2>::Function cuCtxCreate_v2;
HookTraits<HookId::cuCtxDestroy_v2>::Function cuCtxDestroy_v2;
HookTraits<HookId::cuMemAlloc_v2>::Function cuMemAlloc_v2;
HookTraits<HookId::cuMemFree_v2>::Function cuMemFree_v2;
}

int main() {
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuCtxCreate_v2(&context, 0, 0));
  CUdeviceptr address = 0;
  CHECK(cuMemAlloc_v2(&address, 3u << 20));
  CHECK(cuMemFree_v2(address));
  CHECK(cuMemAlloc_v2(&address, 5u << 20));
  // And by hand, after the fact: the same driver.
  void* const driver = LoadDriver();
  auto* const again = reinterpret_cast<HookTraits<HookId::cuMemAlloc_v2>::Function*>(
      dlsym(driver, "cuMemAlloc_v2"));
  CHECK(again(&address, 7u << 20));
  CHECK(cuCtxDestroy_v2(context));
  return 0;
}
