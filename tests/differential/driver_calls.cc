// SPDX-License-Identifier: Apache-2.0
#include "differential/driver_calls.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace differential {
namespace {

constexpr int kVersion = 13000;

template <class Function>
void FindOne(void* library,
             HookTraits<HookId::cuGetProcAddress_v2>::Function* ask,
             Call<Function>* call) {
  void* found = dlsym(library, call->name);
  std::string name = call->name;
  if (const size_t suffix = name.rfind("_v"); suffix != std::string::npos)
    name.resize(suffix);
  // Without a suffix the newest version would be found, which is another function.
  const bool oldest = name == call->name && dlsym(library, (name + "_v2").c_str()) != nullptr;
  void* newest = nullptr;
  int status = 0;
  if (ask != nullptr && !oldest && name.find("_ptsz") == std::string::npos &&
      ask(name.c_str(), &newest, kVersion, 0, &status) == kSuccess && newest != nullptr &&
      name != "cuCtxCreate")
    found = newest;
  if (found == nullptr) {
    std::fprintf(stderr, "the driver has no %s\n", call->name);
    std::exit(3);
  }
  call->function = reinterpret_cast<Function*>(found);
}

}  // namespace

void Calls::Find(bool by_proc_address) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(3);
  }
  auto* const ask = by_proc_address
                        ? reinterpret_cast<HookTraits<HookId::cuGetProcAddress_v2>::Function*>(
                              dlsym(library, "cuGetProcAddress_v2"))
                        : nullptr;
#define DIFFERENTIAL_FIND(name, ...) FindOne(library, ask, &name);
  DIFFERENTIAL_CALLS(DIFFERENTIAL_FIND, DIFFERENTIAL_FIND)
#undef DIFFERENTIAL_FIND
  take_truth = reinterpret_cast<fake::TakeTruthFunction*>(dlsym(library, "fakeTakeTruth"));
  fail_next = reinterpret_cast<fake::FailNextFunction*>(dlsym(library, "fakeFailNext"));
  if (take_truth == nullptr || fail_next == nullptr) {
    std::fprintf(stderr, "this libcuda.so.1 is not the stand-in\n");
    std::exit(3);
  }
}

}  // namespace differential
