// SPDX-License-Identifier: Apache-2.0
// A library that allocates tensors and goes away again.
#include "host.h"

static void* g_mine;

__attribute__((visibility("default"))) void plugin_allocate(void) {
  g_mine = alloc_cpu(400);
}

__attribute__((destructor)) static void End(void) {
  free_cpu(g_mine);
}
