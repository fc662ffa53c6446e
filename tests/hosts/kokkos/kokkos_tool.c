// SPDX-License-Identifier: Apache-2.0
// A Kokkos Tools library of the user's: counts Views, and has no settings, as old ones.
#include <stdint.h>
#include <stdio.h>

struct space {
  char name[64];
};

static int g_views;

void kokkosp_init_library(int sequence, uint64_t version, uint32_t count, void* devices) {
  (void)sequence, (void)version, (void)count, (void)devices;
}

void kokkosp_allocate_data(struct space space,
                           const char* label,
                           const void* memory,
                           uint64_t size) {
  (void)space, (void)label, (void)memory, (void)size;
  ++g_views;
}

void kokkosp_finalize_library(void) {
  printf("tool %d\n", g_views);
}
