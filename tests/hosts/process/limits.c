// SPDX-License-Identifier: Apache-2.0
//
// A program at its limits, one for each argument. The recorder needs resources that the program has
// used up: address space, data, descriptors (none left before the first event, or later), standard
// streams.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "host.h"

static void Pairs(int count) {
  for (int i = 0; i < count; ++i) free_cpu(alloc_cpu((size_t)(i % 1000) + 1));
}

static void Limit(int resource, rlim_t value) {
  const struct rlimit limit = {value, value};
  if (setrlimit(resource, &limit) != 0) exit(9);
}

// What /proc says in pages, in bytes: the first word is all of the address space, the sixth data.
static rlim_t UsedBytes(int word) {
  FILE* const file = fopen("/proc/self/statm", "r");
  long pages = 0;
  for (int i = 0; i <= word; ++i)
    if (fscanf(file, "%ld", &pages) != 1) exit(9);
  fclose(file);
  return (rlim_t)pages * 4096;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const char* const what = argv[1];
  // The heap is large enough from here on: its last part stays, so it is not given back.
  void* parts[64];
  for (int i = 0; i < 64; ++i) parts[i] = malloc(16 << 10);
  for (int i = 0; i < 63; ++i) free(parts[i]);
  if (strcmp(what, "no-space-at-first") == 0) {
    Limit(RLIMIT_AS, UsedBytes(0) + (100 << 10));
    Pairs(20000);
  } else if (strcmp(what, "no-space-later") == 0) {
    Pairs(10);
    Limit(RLIMIT_AS, UsedBytes(0) + (100 << 10));
    Pairs(50000);
  } else if (strcmp(what, "no-data") == 0) {
    Limit(RLIMIT_DATA, UsedBytes(5) + (100 << 10));
    Pairs(20000);
  } else if (strcmp(what, "no-descriptors-at-first") == 0) {
    Limit(RLIMIT_NOFILE, 3);
    Pairs(1000);
    usleep(150 * 1000);
    Pairs(1000);
  } else if (strcmp(what, "no-descriptors-later") == 0) {
    Pairs(10);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &limit);
    Pairs(50000);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &limit);
    Pairs(50000);
  } else if (strcmp(what, "descriptors-come") == 0) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &limit);
    Pairs(1000);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &limit);
    usleep(150 * 1000);
    Pairs(500);
  } else if (strcmp(what, "no-file") == 0) {
    Limit(RLIMIT_FSIZE, 0);
    Pairs(1000);
  } else {
    // Standard streams are closed: printing must still fail.
    close(0);
    close(1);
    close(2);
    int failed = 0;
    for (int i = 0; i < 50000; ++i) {
      free_cpu(alloc_cpu(64));
      failed += write(i % 2 + 1, "x", 1) < 0 && errno == EBADF;
    }
    return failed == 50000 ? 0 : 1;
  }
  puts("still here");
  return 0;
}
