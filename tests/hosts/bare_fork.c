// SPDX-License-Identifier: Apache-2.0
//
// A fork past the C library, so that no fork handler runs: the child still has its parent's mapping
// of the live file, and both go on allocating.
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

int main(void) {
  void* shared = alloc_cpu(1000);
  const long child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
  const int count = child == 0 ? 20000 : 30000;
  for (int i = 0; i < count; ++i) free_cpu(alloc_cpu(2000));
  if (child == 0) {
    free_cpu(shared);
    _exit(7);
  }
  int status = 0;
  waitpid((pid_t)child, &status, 0);
  free_cpu(shared);
  printf("child %d\n", WEXITSTATUS(status));
  return 0;
}
