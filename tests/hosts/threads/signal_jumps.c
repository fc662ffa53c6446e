// SPDX-License-Identifier: Apache-2.0
//
// Signals inside the hooks, one way an argument: handlers on a stack of their own that allocate
// too, handlers that are left by longjmp (to a frame further out, or ones further in), handlers
// that fork. How many pairs of an allocation and its free there
// were goes into the file named by the second argument.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vramscope/annotate.h>

#include "host.h"

static sigjmp_buf g_back;
static volatile sig_atomic_t g_signals;
static volatile sig_atomic_t g_may_jump;
static unsigned long g_pairs;

static void Pair(void) {
  free_cpu(alloc_cpu(128));
  ++g_pairs;
}

static void OnOwnStack(int signal_number) {
  (void)signal_number;
  ++g_signals;
  vramscope_annotate_tag(&g_back, "in a handler", 1);
}

static void Jump(int signal_number) {
  (void)signal_number;
  ++g_signals;
  if (g_may_jump) siglongjmp(g_back, 1);
}

static void Fork(int signal_number) {
  (void)signal_number;
  if (++g_signals > 20) return;
  const pid_t child = fork();
  if (child == 0) {
    g_signals = 1000;
    return;  // into the event that was interrupted
  }
  waitpid(child, NULL, 0);
}

static void Every(long microseconds) {
  const struct itimerval every = {{0, microseconds}, {0, microseconds}};
  setitimer(ITIMER_REAL, &every, NULL);
}

static void Handle(void (*handler)(int), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | flags;
  sigaction(SIGALRM, &action, NULL);
}

__attribute__((noinline)) static void Deeper(int depth) {
  volatile char room[256];
  room[0] = (char)depth;
  if (depth > 0)
    Deeper(depth - 1);
  else
    Pair();
  room[1] = room[0];
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (strcmp(argv[1], "own-stack") == 0) {
    stack_t stack;
    memset(&stack, 0, sizeof stack);
    stack.ss_size = 1 << 16;
    stack.ss_sp = malloc(stack.ss_size);
    sigaltstack(&stack, NULL);
    Handle(OnOwnStack, SA_ONSTACK);
    Every(100);
    while (g_signals < 300) Pair();
    Every(0);
  } else if (strncmp(argv[1], "jump", 4) == 0) {
    // No jump out of malloc: such a program is wrong anyway.
    const int depth = strcmp(argv[1], "jump-in") == 0 ? 8 : 0;
    Handle(Jump, SA_NODEFER);
    Every(100);
    for (volatile int round = 0; g_signals < 200 && round < 100000000; ++round) {
      if (sigsetjmp(g_back, 1) == 0) {
        g_may_jump = 1;
        for (int i = 0; i < 1000; ++i) vramscope_annotate_tag(&g_back, "tag", 1);
      }
      g_may_jump = 0;
      if (depth != 0) Deeper(depth);
      else Pair();
    }
    Every(0);
    g_may_jump = 0;
  } else {
    Handle(Fork, 0);
    Every(300);
    while (g_signals < 20) Pair();
    Every(0);
    if (g_signals >= 1000) {
      for (int i = 0; i < 100; ++i) Pair();
      _exit(0);
    }
  }
  FILE* const truth = fopen(argv[2], "w");
  fprintf(truth, "%lu", g_pairs);
  fclose(truth);
  puts("done");
  return 0;
}
