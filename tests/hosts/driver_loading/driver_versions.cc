// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress for every entry point that is wrapped, at every version of CUDA and with each
// flag: the function must be the one that the driver chose, itself or its wrapper. Prints the names
// that the driver chose, which must not depend on who watches.
#include <cstring>
#include <set>
#include <string>

#include "cuda_driver.h"

namespace {

constexpr int kVersions[] = {1000,  2000,  2020,  3000,  3010,  3020,  4000,  4010,  5000,  5050,
                             6000,  6050,  7000,  7050,  8000,  9000,  9010,  9020,  10000, 10010,
                             10020, 11000, 11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080,
                             12000, 12010, 12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000};

// The name that cuGetProcAddress takes: without a version and a per-thread twin's ending.
std::string BaseName(std::string name) {
  if (name.ends_with("_ptsz"))
    name.resize(name.size() - 5);
  const size_t end = name.size();
  if (end > 3 && name[end - 3] == '_' && name[end - 2] == 'v')
    name.resize(end - 3);
  return name;
}

}  // namespace

int main() {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuGetProcAddress_v2);
  DRIVER_HOOK(driver, cuGetProcAddress);
  // The fake driver's own texts.
  using NameOf = const char*(void*);
  using Choose = void*(const char*, int, unsigned long long);
  auto* const name_of = reinterpret_cast<NameOf*>(dlsym(driver, "FakeNameOf"));
  auto* const choose = reinterpret_cast<Choose*>(dlsym(driver, "FakeChoose"));
  REQUIRE(name_of != nullptr && choose != nullptr);

  std::set<std::string> names = {"", "cuNoSuchThing"};
#define VRAMSCOPE_CUDA_HOOK(name, rule, prototype) names.insert(BaseName(#name));
#define VRAMSCOPE_CUDA_CALL(name, prototype) names.insert(BaseName(#name));
#define VRAMSCOPE_CUDA_IGNORE(name, reason) names.insert(BaseName(#name));
#include "probe/hooks/cuda/cuda_hooks.def"
  for (const std::string& name : names) {
    for (const int version : kVersions) {
      for (const cuuint64_t flags : {0, 1, 2}) {
        void* const chosen = choose(name.c_str(), version, flags);
        CUdriverProcAddressQueryResult status = 0;
        void* got = &status;
        const CUresult result = cuGetProcAddress_v2(name.c_str(), &got, version, flags, &status);
        REQUIRE((result == kSuccess) == (chosen != nullptr));
        void* without_status = &status;
        REQUIRE(cuGetProcAddress_v2(name.c_str(), &without_status, version, flags, nullptr) ==
                result);
        void* old = &status;
        REQUIRE(cuGetProcAddress(name.c_str(), &old, version, flags) == result);
        REQUIRE(got == without_status && got == old);
        if (chosen == nullptr) {
          REQUIRE(got == nullptr);
          continue;
        }
        const char* const real_name = name_of(chosen);
        REQUIRE(real_name != nullptr);
        // The function itself or the wrapper of that very function: what a look-up by name finds.
        REQUIRE(got == chosen || got == dlsym(driver, real_name));
        std::printf("%s %d %llu: %s\n", name.c_str(), version,
                    static_cast<unsigned long long>(flags), real_name);
      }
    }
  }
  return 0;
}
