// SPDX-License-Identifier: Apache-2.0
// The ways to the driver, one a run:
//
//   driver_route open FILE              by that name, three allocations: 3, 5, 7 MiB
//   driver_route opener LIBRARY FILE    the library opens FILE: its own search path counts
//   driver_route plugin LIBRARY         a library linked with the driver, RTLD_DEEPBIND, is first
//   driver_route namespace FILE         in a link namespace of its own
//   driver_route copies FILE OTHER      two drivers, each with allocations of its own
//   driver_route kept FILE              pointers are fetched before cuInit, as cudart does
//
// Prints what it got, which must not depend on who watches.
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "cuda_driver.h"

namespace {

struct Driver {
  HookTraits<HookId::cuInit>::Function* init;
  HookTraits<HookId::cuDevicePrimaryCtxRetain>::Function* retain;
  HookTraits<HookId::cuCtxSetCurrent>::Function* set_current;
  HookTraits<HookId::cuMemAlloc_v2>::Function* allocate;
  HookTraits<HookId::cuMemFree_v2>::Function* release;
};

template <class Function>
void Fetch(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  REQUIRE(*function != nullptr);
}

void FetchAll(void* library, Driver* driver) {
  Fetch(library, "cuInit", &driver->init);
  Fetch(library, "cuDevicePrimaryCtxRetain", &driver->retain);
  Fetch(library, "cuCtxSetCurrent", &driver->set_current);
  Fetch(library, "cuMemAlloc_v2", &driver->allocate);
  Fetch(library, "cuMemFree_v2", &driver->release);
}

void Begin(const Driver& driver) {
  CHECK(driver.init(0));
  CUcontext context = nullptr;
  CHECK(driver.retain(&context, 0));
  CHECK(driver.set_current(context));
}

void Allocate(const Driver& driver, size_t mib) {
  CUdeviceptr address = 0;
  CHECK(driver.allocate(&address, mib << 20));
  std::printf("%zu MiB at %llx\n", mib, address);
}

// Which file the driver is, whatever leads to it: an entry that is never wrapped says so.
void PrintDriver(void* library) {
  Dl_info info{};
  void* const symbol = dlsym(library, "cuDeviceGetCount");
  REQUIRE(symbol != nullptr && dladdr(symbol, &info) != 0);
  std::printf("%s\n", info.dli_fname);
}

void* Open(const char* file, int mode = RTLD_NOW) {
  void* const library = dlopen(file, mode);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(3);
  }
  return library;
}

void UseAll(void* library) {
  Driver driver;
  FetchAll(library, &driver);
  PrintDriver(library);
  Begin(driver);
  for (const size_t mib : {3, 5, 7})
    Allocate(driver, mib);
}

void UsePlugin(const char* file) {
  void* const plugin = Open(file, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  auto* const begin = reinterpret_cast<int (*)()>(dlsym(plugin, "PluginBegin"));
  auto* const allocate =
      reinterpret_cast<int (*)(unsigned long long*, size_t)>(dlsym(plugin, "PluginAllocate"));
  REQUIRE(begin != nullptr && allocate != nullptr);
  CHECK(begin());
  unsigned long long address = 0;
  CHECK(allocate(&address, 3u << 20));
  std::printf("%llx\n", address);
  // Another library is opened meanwhile, as programs do.
  Open("libm.so.6");
  CHECK(allocate(&address, 5u << 20));
  std::printf("%llx\n", address);
}

// Where a library keeps what it found: written once, called by everybody.
Driver g_kept;

}  // namespace

int main(int argc, char** argv) {
  REQUIRE(argc >= 3);
  const std::string route = argv[1];
  if (route == "open") {
    UseAll(Open(argv[2]));
  } else if (route == "opener") {
    void* const opener = Open(argv[2]);
    auto* const open = reinterpret_cast<void* (*)(const char*)>(dlsym(opener, "OpenFile"));
    REQUIRE(open != nullptr);
    void* const driver = open(argv[3]);
    REQUIRE(driver != nullptr);
    UseAll(driver);
  } else if (route == "plugin") {
    UsePlugin(argv[2]);
  } else if (route == "namespace") {
    void* const driver = dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
    REQUIRE(driver != nullptr);
    UseAll(driver);
  } else if (route == "copies") {
    UseAll(Open(argv[2]));
    void* const other = Open(argv[3]);
    Driver second;
    FetchAll(other, &second);
    PrintDriver(other);
    Begin(second);
    Allocate(second, 9);
  } else if (route == "kept") {
    FetchAll(Open(argv[2]), &g_kept);
    Begin(g_kept);
    for (const size_t mib : {3, 5, 7})
      Allocate(g_kept, mib);
  } else {
    return 4;
  }
  return 0;
}
