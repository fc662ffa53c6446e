// SPDX-License-Identifier: Apache-2.0
//
// A timer's signal arrives again and again while tensors are allocated, and its handler frees and
// allocates too: the handler may find the thread inside the recorder.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "host.h"

static volatile sig_atomic_t g_signals;

static void Handler(int signal_number) {
  (void)signal_number;
  static char storage[64];
  (void)storage;
  ++g_signals;
  free_cpu(NULL);  // freeing nothing is safe in a handler, and still enters the hook
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = Handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval every = {{0, 200}, {0, 200}};
  setitimer(ITIMER_REAL, &every, NULL);
  for (int i = 0; i < 300000 || g_signals < 20; ++i) free_cpu(alloc_cpu(128));
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  puts("done");
  return 0;
}
