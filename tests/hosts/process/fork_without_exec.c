// SPDX-License-Identifier: Apache-2.0
//
// A data loader's worker: the child allocates after fork, frees memory of the parent, and ends with
// _exit; the parent continues. Both must be whole, each in its own file.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

int main(void) {
  void* shared = alloc_cpu(1000);
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 100; ++i) free_cpu(alloc_cpu(2000));
    free_cpu(shared);
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  for (int i = 0; i < 10; ++i) free_cpu(alloc_cpu(3000));
  free_cpu(shared);
  printf("child %d\n", WEXITSTATUS(status));
  return 0;
}
