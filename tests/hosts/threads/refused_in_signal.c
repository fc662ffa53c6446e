// SPDX-License-Identifier: Apache-2.0
//
// A timer's handler gives up on memory, as PyTorch's caching allocator says it, while the thread
// that it interrupts may be inside the recorder. Writes how often to the file that is named.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "host.h"

static volatile sig_atomic_t g_refused;

static void Handler(int signal_number) {
  (void)signal_number;
  give_up(1 << 30, 0, 0, 1);
  ++g_refused;
}

int main(int argc, char** argv) {
  if (argc != 2)
    return 2;
  Handler(0);  // what is bound at the first call
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = Handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval every = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &every, NULL);
  for (int i = 0; i < 200000 || g_refused < 50; ++i)
    free_cpu(alloc_cpu(128));
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  FILE* const file = fopen(argv[1], "w");
  if (file == NULL)
    return 2;
  fprintf(file, "%d\n", (int)g_refused);
  fclose(file);
  puts("done");
  return 0;
}
