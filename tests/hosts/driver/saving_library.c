// SPDX-License-Identifier: Apache-2.0
// The part of torch_memory_saver that the probe sees: regions with a tag, and calls of cuMemMap.
#include <stdbool.h>
#include <stddef.h>

static _Thread_local bool t_in_region = false;
static _Thread_local const char* t_tag = "default";

void tms_set_interesting_region(bool in_region) {
  t_in_region = in_region;
}

bool tms_get_interesting_region(void) {
  return t_in_region;
}

void tms_set_current_tag(const char* tag) {
  t_tag = tag;
}

const char* tms_get_current_tag(void) {
  return t_tag;
}

typedef int Map(unsigned long long, size_t, size_t, unsigned long long, unsigned long long);
int saver_map(Map* map, unsigned long long address, size_t size, unsigned long long handle) {
  volatile int result = map(address, size, 0, handle, 0);
  return result;
}
