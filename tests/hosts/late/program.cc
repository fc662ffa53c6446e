// SPDX-License-Identifier: Apache-2.0
//
// A program in C++ that opens the probe when its own libraries are at work: PROBE DIRECTORY.
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>

extern "C" void* late_cpu_tensor(std::size_t size);
extern "C" void late_cpu_delete(void* pointer);

int main(int argc, char** argv) {
  if (argc != 3)
    return 2;
  void* const before = late_cpu_tensor(1000);
  void* const probe = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (probe == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  auto* const attach =
      reinterpret_cast<int (*)(const char*, const char*)>(dlsym(probe, "vramscope_attach"));
  auto* const detach = reinterpret_cast<void (*)()>(dlsym(probe, "vramscope_detach"));
  if (attach == nullptr || detach == nullptr)
    return 4;
  if (const int error = attach(argv[2], "cpu"); error != 0)
    return error;
  void* const inside = late_cpu_tensor(3000);
  late_cpu_delete(before);
  late_cpu_delete(inside);
  void* const kept = late_cpu_tensor(5000);
  detach();
  late_cpu_delete(kept);
  return 0;
}
