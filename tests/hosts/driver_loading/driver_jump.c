// SPDX-License-Identifier: Apache-2.0
//
// A handler jumps out of a driver call; what comes after it are ordinary calls. Run with the
// strange driver, which raises the signal.
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

typedef int (*AllocFn)(unsigned long long*, size_t);
typedef int (*FreeFn)(unsigned long long);

static sigjmp_buf g_back;

static void Jump(int signal_number) {
  siglongjmp(g_back, signal_number);
}

static __attribute__((noinline)) unsigned long long Alloc(AllocFn alloc, size_t size) {
  unsigned long long address = 0;
  return alloc(&address, size) == 0 ? address : 0;
}

int main(void) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return 3;
  const AllocFn alloc = (AllocFn)dlsym(driver, "cuMemAlloc_v2");
  const FreeFn release = (FreeFn)dlsym(driver, "cuMemFree_v2");
  signal(SIGUSR1, Jump);
  volatile int jumps = 0;
  for (volatile int i = 0; i < 3; ++i) {
    if (sigsetjmp(g_back, 1) == 0)
      Alloc(alloc, 13);
    else
      ++jumps;
    release(Alloc(alloc, 1000));
  }
  printf("jumps %d\n", jumps);
  return 0;
}
