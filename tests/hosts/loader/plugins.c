// SPDX-License-Identifier: Apache-2.0
//
// Loads and unloads a library that calls the hooks. With "apart" it does so in a link namespace of
// its own, with an allocator and a CUDA driver of its own: nothing can be recorded there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host.h"

static void* Load(const char* path, int apart) {
  void* const library = apart ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW) : dlopen(path, RTLD_NOW);
  if (library == NULL) puts(dlerror());
  return library;
}

static int UseDriver(void) {
  void* const driver = Load("libcuda.so.1", 1);
  if (driver == NULL) return 3;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*set_current)(void*) = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  int (*alloc)(unsigned long long*, size_t) =
      (int (*)(unsigned long long*, size_t))dlsym(driver, "cuMemAlloc_v2");
  void* context = NULL;
  unsigned long long address = 0;
  if (init(0) != 0 || retain(&context, 0) != 0 || set_current(context) != 0) return 4;
  return alloc(&address, 1 << 20) != 0 ? 5 : 0;
}

int main(int argc, char** argv) {
  char path[4096];
  const char* const slash = strrchr(argv[0], '/');
  snprintf(path, sizeof path, "%.*s/libplugin.so", (int)(slash - argv[0]), argv[0]);
  const int apart = argc == 2 && strcmp(argv[1], "apart") == 0;
  free_cpu(alloc_cpu(10));
  for (int i = 0; i < (apart ? 3 : 100); ++i) {
    void* const library = Load(path, apart);
    if (library == NULL) return 2;
    void (*allocate)(void) = (void (*)(void))dlsym(library, "plugin_allocate");
    allocate();
    if (dlclose(library) != 0) return 1;
  }
  const int status = apart ? UseDriver() : 0;
  if (status == 0) puts("done");
  return status;
}
