// SPDX-License-Identifier: Apache-2.0
//
// A fake libcudart.so: it opens the driver at its first call and keeps the pointers, like the real
// one.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

static int (*g_malloc)(unsigned long long*, size_t);
static int (*g_free)(unsigned long long);

static int Begin(void) {
  if (g_malloc != NULL)
    return 0;
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL)
    return 35;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*set)(void*) = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  void* context = NULL;
  if (init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0)
    return 3;
  g_free = (int (*)(unsigned long long))dlsym(driver, "cuMemFree_v2");
  g_malloc = (int (*)(unsigned long long*, size_t))dlsym(driver, "cuMemAlloc_v2");
  return 0;
}

EXPORT int cudaMalloc(void** pointer, size_t size) {
  const int error = Begin();
  unsigned long long address = 0;
  const int result = error != 0 ? error : g_malloc(&address, size);
  *pointer = (void*)(uintptr_t)address;
  return result;
}

EXPORT int cudaFree(void* pointer) {
  return g_free((unsigned long long)(uintptr_t)pointer);
}
