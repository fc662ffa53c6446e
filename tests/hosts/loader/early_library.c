// SPDX-License-Identifier: Apache-2.0
//
// A library that is initialised before the probe, being a dependency of the program, and that
// allocates at once; its fork handler, registered before the probe's, frees what the parent made.
#include <pthread.h>

#include "host.h"

static void* g_tensor;

static void Forked(void) {
  free_cpu(g_tensor);
  g_tensor = alloc_cpu(300);
}

__attribute__((visibility("default"))) int early_library_is_used(void) { return g_tensor != 0; }

__attribute__((constructor)) static void Begin(void) {
  g_tensor = alloc_cpu(200);
  pthread_atfork(0, 0, Forked);
}
