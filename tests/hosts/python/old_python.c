// SPDX-License-Identifier: Apache-2.0
// What an interpreter before CPython 3.9 exports: PyFrame_GetCode and PyFrame_GetBack are missing.
#include <dlfcn.h>
#include <stdio.h>

#include "host.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int Py_IsInitialized(void) {
  return 1;
}

EXPORT const char* Py_GetVersion(void) {
  return "3.8.18 (fake)";
}

EXPORT int PyGILState_Check(void) {
  return 1;
}

EXPORT void* PyErr_Occurred(void) {
  return NULL;
}

int main(void) {
  printf("%d\n", dlopen("libtorch_lookalike.so", RTLD_LAZY) == NULL);
  free_cpu(alloc_cpu(4096));
  return 0;
}
