// SPDX-License-Identifier: Apache-2.0
#pragma once

// The driver API as the CUDA test programs use it: found by dlsym, one pointer an entry point, and
// a check that ends the program with the line's number.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "probe/hooks/cuda/hook_table.h"

using namespace vramscope::probe::cuda;

#define REQUIRE(condition)                                                 \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(3);                                                        \
    }                                                                      \
  } while (false)
#define CHECK(call) REQUIRE((call) == kSuccess)

inline void* LoadDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(3);
  }
  return library;
}

// DRIVER_HOOK(library, cuMemAlloc_v2) declares a pointer of that name.
#define DRIVER_HOOK(library, name)                                                                 \
  auto* const name = reinterpret_cast<HookTraits<HookId::name>::Function*>(dlsym(library, #name)); \
  REQUIRE(name != nullptr)
#define DRIVER_CALL(library, name)                                                                 \
  auto* const name = reinterpret_cast<CallTraits<CallId::name>::Function*>(dlsym(library, #name)); \
  REQUIRE(name != nullptr)
