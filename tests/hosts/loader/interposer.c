// SPDX-License-Identifier: Apache-2.0
//
// Another tool in LD_PRELOAD that interposes malloc and the functions that the probe interposes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef int (*Main)(int, char**, char**);

EXPORT void* dlopen(const char* file, int mode) {
  void* (*real)(const char*, int) = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  return real(file, mode);
}

EXPORT void* malloc(size_t size) {
  static void* (*real)(size_t);
  if (real == NULL) real = (void* (*)(size_t))dlsym(RTLD_NEXT, "malloc");
  return real(size);
}

EXPORT __attribute__((noreturn)) void exit(int status) {
  void (*real)(int) = (void (*)(int))dlsym(RTLD_NEXT, "exit");
  if (write(1, "interposed exit\n", 16) != 16) abort();
  real(status);
  abort();  // not reached
}

EXPORT int __libc_start_main(Main program, int argc, char** argv, void (*init)(void), void (*fini)(void),
                             void (*rtld_fini)(void), void* stack_end) {
  int (*real)(Main, int, char**, void (*)(void), void (*)(void), void (*)(void), void*) =
      (int (*)(Main, int, char**, void (*)(void), void (*)(void), void (*)(void), void*))dlsym(
          RTLD_NEXT, "__libc_start_main");
  return real(program, argc, argv, init, fini, rtld_fini, stack_end);
}
