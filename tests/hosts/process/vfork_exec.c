// SPDX-License-Identifier: Apache-2.0
//
// A child of vfork shares its parent's memory until exec: its allocations belong to the parent, and
// its exit does not end the parent. With an argument, the child allocates first, before the file
// exists, and must not create it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "child") == 0) {
    for (int i = 0; i < 3; ++i) alloc_cpu(30);
    return 4;
  }
  if (argc == 1) free_cpu(alloc_cpu(10));
  int sum = 0;
  for (int i = 0; i < 5; ++i) {
    const pid_t child = vfork();
    if (child == 0) {
      free_cpu(alloc_cpu(20));
      if (i % 2 == 0) _exit(1);
      execl(argv[0], argv[0], "child", (char*)NULL);
      _exit(99);
    }
    int status = 0;
    waitpid(child, &status, 0);
    sum += WEXITSTATUS(status);
    free_cpu(alloc_cpu(40));
  }
  printf("%d\n", sum);
  return 0;
}
