// SPDX-License-Identifier: Apache-2.0
// Entry points as cudart asks for them: by name, version and flags, cuGetProcAddress for itself
// included.
#include "cuda_driver.h"

namespace {

HookTraits<HookId::cuGetProcAddress_v2>::Function* g_get = nullptr;

template <HookId kId>
auto* Get(const char* name, int version, cuuint64_t flags = 0) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = -1;
  CHECK(g_get(name, &function, version, flags, &status));
  REQUIRE(status == 0 && function != nullptr);
  return reinterpret_cast<typename HookTraits<kId>::Function*>(function);
}

}  // namespace

int main() {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuGetProcAddress_v2);
  g_get = cuGetProcAddress_v2;

  // cudart's first call, and names that do not exist.
  void* function = &function;
  g_get("", &function, 0, 0, nullptr);
  REQUIRE(function == nullptr);
  REQUIRE(g_get("cuNoSuchThing", &function, 12000, 0, nullptr) != kSuccess && function == nullptr);
  CUdriverProcAddressQueryResult status = 0;
  REQUIRE(g_get("cuMemAlloc", &function, 1000, 0, &status) != kSuccess && status == 2);

  auto* const old_get = Get<HookId::cuGetProcAddress>("cuGetProcAddress", 11030);
  g_get = Get<HookId::cuGetProcAddress_v2>("cuGetProcAddress", 12000);
  REQUIRE(reinterpret_cast<void*>(old_get) != reinterpret_cast<void*>(g_get));
  CHECK(old_get("cuInit", &function, 2000, 0));
  CHECK(reinterpret_cast<HookTraits<HookId::cuInit>::Function*>(function)(0));

  auto* const retain = Get<HookId::cuDevicePrimaryCtxRetain>("cuDevicePrimaryCtxRetain", 7000);
  auto* const set_current = Get<HookId::cuCtxSetCurrent>("cuCtxSetCurrent", 4000);
  auto* const old_alloc = Get<HookId::cuMemAlloc>("cuMemAlloc", 2000);
  auto* const alloc = Get<HookId::cuMemAlloc_v2>("cuMemAlloc", 13000);
  auto* const alloc_async = Get<HookId::cuMemAllocAsync>("cuMemAllocAsync", 11020);
  auto* const alloc_ptsz = Get<HookId::cuMemAllocAsync_ptsz>("cuMemAllocAsync", 11020, 2);
  REQUIRE(alloc_async != alloc_ptsz);

  CUcontext context = nullptr;
  CHECK(retain(&context, 0));
  CHECK(set_current(context));
  CUdeviceptr address = 0;
  CUdeviceptr_v1 low = 0;
  CHECK(old_alloc(&low, 3u << 20));
  CHECK(alloc(&address, 5u << 20));
  CHECK(alloc_async(&address, 7u << 20, nullptr));
  CHECK(alloc_ptsz(&address, 9u << 20, nullptr));
  return 0;
}
