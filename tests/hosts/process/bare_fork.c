// SPDX-License-Identifier: Apache-2.0
//
// A fork past the C library, without fork handlers: the child still maps its parent's live file,
// and both continue to allocate.
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
