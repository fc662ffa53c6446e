// SPDX-License-Identifier: Apache-2.0
// The driver by its other names, and a library that prefers its own dependencies to everybody's
// exports (RTLD_DEEPBIND), so that no preloaded function can come first.
#include <cstring>
#include <string>

#include "cuda_driver.h"

int main(int, char** argv) {
  REQUIRE(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == nullptr);
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND);
  REQUIRE(driver != nullptr);
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));

  CUdeviceptr address = 0;
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  CHECK(cuMemAlloc_v2(&address, 3u << 20));

  // By its path.
  Dl_info info{};
  void* const symbol = dlsym(driver, "cuDeviceGetCount");
  REQUIRE(symbol != nullptr && dladdr(symbol, &info) != 0);
  void* const by_path = dlopen(info.dli_fname, RTLD_NOW);
  REQUIRE(by_path == driver);
  auto* const same = reinterpret_cast<HookTraits<HookId::cuMemAlloc_v2>::Function*>(
      dlsym(by_path, "cuMemAlloc_v2"));
  CHECK(same(&address, 5u << 20));

  std::string plugin_path = argv[0];
  plugin_path = plugin_path.substr(0, plugin_path.rfind('/') + 1) + "libdriver_plugin.so";
  void* const plugin = dlopen(plugin_path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  REQUIRE(plugin != nullptr);
  auto* const allocate =
      reinterpret_cast<int (*)(unsigned long long*, size_t)>(dlsym(plugin, "PluginAllocate"));
  REQUIRE(allocate != nullptr);
  CHECK(allocate(&address, 7u << 20));
  return 0;
}
