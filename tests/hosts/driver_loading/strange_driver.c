/* SPDX-License-Identifier: Apache-2.0 */
/* Half a CUDA driver: from another time. It says so, has entry points that nobody has heard of and a
 * later version of one that everybody knows, and lacks most others. */
#include <signal.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags) {
  return flags == 0 ? 0 : 1;
}

EXPORT int cuDriverGetVersion(int* version) {
  *version = 99990;
  return 0;
}

/* A signal arrives in here where 13 bytes are wanted. */
EXPORT int cuMemAlloc_v2(unsigned long long* address, size_t size) {
  if (size == 13) raise(SIGUSR1);
  *address = (unsigned long long)(size_t)malloc(size);
  return 0;
}

EXPORT int cuMemAlloc_v9(unsigned long long* address, size_t size, int extra) {
  *address = (unsigned long long)(size_t)malloc(size);
  return extra;
}

EXPORT int cuMemFree_v2(unsigned long long address) {
  free((void*)(size_t)address);
  return 0;
}

EXPORT int cuFromTheFuture(int a, double b, void* c) {
  return a + (int)b + (c != NULL);
}
