// SPDX-License-Identifier: Apache-2.0
//
// A small quota: beyond RLIMIT_FSIZE the kernel sends SIGXFSZ to the writer. The recording must
// stop, report that, and leave the program alone.
#include <stdio.h>
#include <sys/resource.h>

#include "host.h"

int main(void) {
  const struct rlimit limit = {300 * 1024, 300 * 1024};
  setrlimit(RLIMIT_FSIZE, &limit);
  for (int i = 0; i < 200000; ++i) free_cpu(alloc_cpu((size_t)(i % 1000) + 1));
  puts("still here");
  return 0;
}
