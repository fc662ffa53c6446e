// SPDX-License-Identifier: Apache-2.0
//
// Scopes as programs misuse them, one way an argument. Every allocation has its own size, so that
// the test finds it in the recording.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vramscope/annotate.h>

#include "host.h"

static void Touch(size_t size) {
  free_cpu(alloc_cpu(size));
}

static void Balanced(void) {
  Touch(101);
  vramscope_annotate_scope_push("outer");
  Touch(102);
  vramscope_annotate_scope_push("inner");
  Touch(103);
  vramscope_annotate_scope_pop();
  Touch(104);
  char name[] = "temporary";
  vramscope_annotate_scope_push(name);
  memset(name, 'x', sizeof name - 1);  // the name was copied
  Touch(105);
  vramscope_annotate_scope_pop();
  vramscope_annotate_scope_pop();
  Touch(106);
}

static void Unbalanced(void) {
  vramscope_annotate_scope_pop();
  vramscope_annotate_scope_pop();
  Touch(201);
  vramscope_annotate_scope_push(NULL);
  Touch(202);
  vramscope_annotate_scope_pop();
  vramscope_annotate_scope_push("");
  vramscope_annotate_scope_push("left open");
  Touch(203);
}

static void Deep(void) {
  char name[16];
  for (int i = 0; i < 200; ++i) {
    snprintf(name, sizeof name, "%d", i);
    vramscope_annotate_scope_push(name);
  }
  Touch(301);
  for (int i = 0; i < 200 - 64; ++i)
    vramscope_annotate_scope_pop();
  Touch(302);
  vramscope_annotate_scope_pop();
  Touch(303);
  for (int i = 0; i < 63; ++i)
    vramscope_annotate_scope_pop();
  Touch(304);
}

static void LongNames(void) {
  static char name[100000];
  // Two bytes a character: the cut must not be inside of one.
  for (size_t i = 0; i + 2 < sizeof name; i += 2)
    memcpy(name + i + 1, "\xc3\xa4", 2);
  name[0] = 'x';
  vramscope_annotate_scope_push(name);
  Touch(401);
  vramscope_annotate_tag(name, name, 5);
  vramscope_annotate_mark(name);
  vramscope_annotate_scope_pop();
  Touch(402);
}

static void Fork(void) {
  vramscope_annotate_scope_push("before fork");
  Touch(501);
  const pid_t child = fork();
  if (child == 0) {
    Touch(502);
    vramscope_annotate_scope_push("child");
    Touch(503);
    vramscope_annotate_scope_pop();
    vramscope_annotate_scope_pop();
    Touch(504);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  Touch(505);
  vramscope_annotate_scope_pop();
  Touch(506);
}

static void ManyNames(void) {
  char name[32];
  for (int i = 0; i < 100000; ++i) {
    snprintf(name, sizeof name, "name %d", i);
    vramscope_annotate_scope_push(name);
    Touch(600);
    vramscope_annotate_scope_pop();
  }
  vramscope_annotate_scope_push("name 7");
  Touch(601);
  vramscope_annotate_scope_pop();
}

static void* Worker(void* number) {
  char name[32];
  snprintf(name, sizeof name, "thread %d", *(int*)number);
  for (int i = 0; i < 4000; ++i) {
    vramscope_annotate_scope_push(name);
    vramscope_annotate_scope_push("inner");
    Touch(1000 + (size_t) * (int*)number);
    vramscope_annotate_scope_pop();
    vramscope_annotate_scope_pop();
    Touch(700);
  }
  vramscope_annotate_scope_push("left open");
  return NULL;
}

// Sixteen threads at once, then one more that takes over a stream of theirs.
static void Threads(void) {
  pthread_t threads[16];
  int numbers[17];
  for (int i = 0; i < 17; ++i)
    numbers[i] = i;
  for (int i = 0; i < 16; ++i)
    pthread_create(&threads[i], NULL, Worker, &numbers[i]);
  for (int i = 0; i < 16; ++i)
    pthread_join(threads[i], NULL);
  pthread_create(&threads[0], NULL, Worker, &numbers[16]);
  pthread_join(threads[0], NULL);
}

// The names continue over the border of a chunk, where readers forget the scope.
static void Chunks(void) {
  vramscope_annotate_scope_push("all the time");
  for (int i = 0; i < 100000; ++i)
    Touch(800);
  vramscope_annotate_scope_pop();
}

static void Paused(void) {
  vramscope_annotate_scope_push("around");
  Touch(901);
  vramscope_annotate_stop();
  vramscope_annotate_scope_pop();
  vramscope_annotate_scope_push("begun in the pause");
  Touch(902);
  vramscope_annotate_start();
  Touch(903);
  vramscope_annotate_scope_pop();
  Touch(904);
}

static void Handler(int signal_number) {
  (void)signal_number;
  vramscope_annotate_scope_push("handler");
  free_cpu(NULL);
  vramscope_annotate_scope_pop();
}

static void Signals(void) {
  free_cpu(NULL);  // the first call loads libc10, which a handler may not
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = Handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval every = {{0, 100}, {0, 100}};
  setitimer(ITIMER_REAL, &every, NULL);
  for (int i = 0; i < 60000; ++i) {
    vramscope_annotate_scope_push("outer");
    vramscope_annotate_scope_push("inner");
    Touch(1101);
    vramscope_annotate_scope_pop();
    vramscope_annotate_scope_pop();
  }
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  Touch(1102);
}

static double NowNs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

// Nanoseconds for one push and its pop, and for one that an event uses.
static void Cost(void) {
  enum { kPairs = 2000000 };
  Touch(1);
  const double begin = NowNs();
  for (int i = 0; i < kPairs; ++i) {
    vramscope_annotate_scope_push("lstm/l0/i2h/weight");
    vramscope_annotate_scope_pop();
  }
  const double pairs = NowNs();
  for (int i = 0; i < kPairs / 4; ++i) {
    vramscope_annotate_scope_push("lstm/l0/i2h/weight");
    Touch(1);
    vramscope_annotate_scope_pop();
  }
  const double events = NowNs();
  for (int i = 0; i < kPairs / 4; ++i)
    Touch(1);
  const double plain = NowNs();
  printf("push+pop %.1f ns, around alloc+free %.1f ns, alloc+free alone %.1f ns\n",
         (pairs - begin) / kPairs, (events - pairs) / (kPairs / 4),
         (plain - events) / (kPairs / 4));
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } kCases[] = {
      {"balanced", Balanced}, {"unbalanced", Unbalanced}, {"deep", Deep},       {"long", LongNames},
      {"fork", Fork},         {"many", ManyNames},        {"threads", Threads}, {"chunks", Chunks},
      {"paused", Paused},     {"signals", Signals},       {"cost", Cost}};
  for (size_t i = 0; i < sizeof kCases / sizeof kCases[0]; ++i) {
    if (argc == 2 && strcmp(argv[1], kCases[i].name) == 0) {
      kCases[i].run();
      return 0;
    }
  }
  return 2;
}
