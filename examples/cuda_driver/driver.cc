// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>

#include <cstdio>
#include <cstdlib>

namespace driver {
namespace {

Api LoadOrExit() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s: no NVIDIA driver on this machine: %s\n",
                 program_invocation_short_name, dlerror());
    std::exit(2);
  }
  Api api;
#define VRAMSCOPE_EXAMPLE_LOAD(symbol, member, parameters)                      \
  api.member = reinterpret_cast<Result(*) parameters>(dlsym(library, #symbol)); \
  if (api.member == nullptr) {                                                  \
    std::fprintf(stderr, "%s: libcuda.so.1 has no %s; update the driver\n",     \
                 program_invocation_short_name, #symbol);                       \
    std::exit(2);                                                               \
  }
  VRAMSCOPE_EXAMPLE_ENTRIES(VRAMSCOPE_EXAMPLE_LOAD)
#undef VRAMSCOPE_EXAMPLE_LOAD
  return api;
}

}  // namespace

const Api& Load() {
  static const Api api = LoadOrExit();
  return api;
}

void Check(Result result, const char* what) {
  if (result == 0) {
    return;
  }
  std::fprintf(stderr, "%s: %s failed with CUresult %d\n", program_invocation_short_name, what,
               result);
  std::exit(1);
}

}  // namespace driver
