// SPDX-License-Identifier: Apache-2.0
// Asks the driver for memory as PyTorch's caching allocator does: where it is refused it gives back
// what it has cached (its caller does) and asks again, once. Built under names that the probe knows.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

typedef int Alloc(unsigned long long*, size_t);
typedef void Release(void);

// How often it asked; negative where it was refused for good.
int ask(unsigned long long* address, size_t size, Release* release) {
  Alloc* const alloc = (Alloc*)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
  volatile int asked = 1;
  if (alloc(address, size) == 0)
    return asked;
  if (release != NULL)
    release();
  asked = 2;
  return alloc(address, size) == 0 ? asked : -asked;
}

// The same without a second try.
int ask_once(unsigned long long* address, size_t size) {
  Alloc* const alloc = (Alloc*)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
  volatile int result = alloc(address, size);
  return result;
}
