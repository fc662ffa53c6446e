// SPDX-License-Identifier: Apache-2.0
//
// What lives when main returns lives at `end`, though an atexit handler frees it.
#include <stdio.h>
#include <stdlib.h>

#include "host.h"

static void* g_tensor;

static void FreeAtExit(void) {
  free_cpu(g_tensor);
}

int main(void) {
  atexit(FreeAtExit);
  g_tensor = alloc_cpu(123456);
  puts("returning");
  return 5;
}
