// SPDX-License-Identifier: Apache-2.0
//
// Uses a driver of another version like a careful program: it looks up everything, and calls what
// exists.
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) {
    puts("no driver");
    return 3;
  }
  static const char* const kNames[] = {"cuInit",         "cuDriverGetVersion",   "cuGetProcAddress_v2",
                                       "cuMemAlloc_v2",  "cuMemAlloc_v9",        "cuMemFree_v2",
                                       "cuMemAllocAsync", "cuFromTheFuture",     "cuDevicePrimaryCtxRetain",
                                       "cuMemGetInfo_v2", "cuLaunchKernel"};
  for (unsigned i = 0; i < sizeof kNames / sizeof kNames[0]; ++i)
    printf("%s %d\n", kNames[i], dlsym(driver, kNames[i]) != NULL);
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*version)(int*) = (int (*)(int*))dlsym(driver, "cuDriverGetVersion");
  int (*alloc)(unsigned long long*, size_t) = (int (*)(unsigned long long*, size_t))dlsym(driver, "cuMemAlloc_v2");
  int (*alloc9)(unsigned long long*, size_t, int) =
      (int (*)(unsigned long long*, size_t, int))dlsym(driver, "cuMemAlloc_v9");
  int (*release)(unsigned long long) = (int (*)(unsigned long long))dlsym(driver, "cuMemFree_v2");
  int (*future)(int, double, void*) = (int (*)(int, double, void*))dlsym(driver, "cuFromTheFuture");
  int number = 0;
  unsigned long long first = 0, second = 0;
  printf("%d %d %d\n", init(0), version(&number), number);
  printf("%d %d %d\n", alloc(&first, 1000), alloc9(&second, 2000, 17), future(1, 2.0, &number));
  printf("%d %d\n", release(first), release(second));
  return 0;
}
