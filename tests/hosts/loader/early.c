// SPDX-License-Identifier: Apache-2.0
//
// Allocations before the probe's constructor, and in a fork handler before its own.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

int early_library_is_used(void);

int main(void) {
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 10; ++i) free_cpu(alloc_cpu(100));
    _exit(5);
  }
  int status = 0;
  waitpid(child, &status, 0);
  for (int i = 0; i < 20; ++i) free_cpu(alloc_cpu(100));
  printf("%d %d\n", early_library_is_used(), WEXITSTATUS(status));
  return 0;
}
