// SPDX-License-Identifier: Apache-2.0
//
// A program that runs for long and always does the same: long_run STEPS PAIRS [PAUSE_US [UNTIL]].
// Each
// step allocates and frees in scopes, replaces some of a cache, has a second thread free what this
// one allocated, and marks `iteration`; at 64 of them it marks `at N`, in the middle of the step.
// The peak comes in its first tenth. With UNTIL it ends with that step of them. At its end it says how long the longest step took, and the
// median one, in microseconds.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <vramscope/annotate.h>

#include "host.h"

enum { kLayers = 8, kCache = 600, kHanded = 4, kBurst = 64, kMarks = 64 };

static uint64_t g_state = 1;
static void* g_cache[kCache];
static void* g_handed[kHanded];
static pthread_barrier_t g_turn;
static int g_ended;

static uint32_t Random(uint32_t below) {
  g_state = g_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(g_state >> 33) % below;
}

static void* Take(const char* tag) {
  void* const block = alloc_cpu(64 + 64 * (size_t)Random(1024));
  if (tag != NULL) vramscope_annotate_tag(block, tag, 0);
  return block;
}

static void* Worker(void* nothing) {
  void* own = NULL;
  for (int turn = 0;; ++turn) {
    pthread_barrier_wait(&g_turn);
    if (g_ended) return nothing;
    for (int i = 0; i < kHanded; ++i) free_cpu(g_handed[i]);
    if (turn % 100 == 0) {
      free_cpu(own);
      own = alloc_cpu(4096 + 64 * (size_t)(turn / 100 % 50));
      vramscope_annotate_tag(own, "of the worker", 0);
    }
    pthread_barrier_wait(&g_turn);
  }
}

static void Layer(int number, int pairs) {
  char name[16];
  snprintf(name, sizeof name, "layer.%d", number);
  vramscope_annotate_scope_push(name);
  for (int i = 0; i < pairs; ++i) {
    void* const block = Take(NULL);
    if (Random(32) == 0) {
      const uint32_t slot = Random(kCache);
      free_cpu(g_cache[slot]);
      g_cache[slot] = Take(slot % 2 == 0 ? "cache" : NULL);
    }
    free_cpu(block);
  }
  vramscope_annotate_scope_pop();
}

static void Burst(void) {
  void* blocks[kBurst];
  vramscope_annotate_scope_push("burst");
  for (int i = 0; i < kBurst; ++i) {
    blocks[i] = alloc_cpu(1000000 + (size_t)i);
    if (i % 4 == 0) vramscope_annotate_tag(blocks[i], "of the peak", 0);
  }
  for (int i = 0; i < kBurst; ++i) free_cpu(blocks[i]);
  vramscope_annotate_scope_pop();
}

static int64_t Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int Compare(const void* a, const void* b) {
  const uint32_t x = *(const uint32_t*)a, y = *(const uint32_t*)b;
  return x < y ? -1 : x > y;
}

int main(int argc, char** argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : 1000;
  const int pairs = argc > 2 ? atoi(argv[2]) : 100;
  const int pause_us = argc > 3 ? atoi(argv[3]) : 0;
  const int until = argc > 4 ? atoi(argv[4]) : steps;
  const int every = steps > kMarks ? steps / kMarks : 1;
  uint32_t* const took_us = calloc((size_t)steps + 1, sizeof *took_us);
  if (took_us == NULL) return 1;
  pthread_t worker;
  pthread_barrier_init(&g_turn, NULL, 2);
  pthread_create(&worker, NULL, Worker, NULL);
  puts("running");
  fflush(stdout);
  for (int step = 0; step < until; ++step) {
    const int64_t begin = Now();
    for (int layer = 0; layer < kLayers; ++layer) Layer(layer, pairs / kLayers);
    if (step == steps / 20) Burst();
    for (int i = 0; i < kHanded; ++i) g_handed[i] = Take(i == 0 ? "handed" : NULL);
    if (step % every == 0) {
      char name[32];
      snprintf(name, sizeof name, "at %d", step);
      vramscope_annotate_mark(name);
    }
    pthread_barrier_wait(&g_turn);
    pthread_barrier_wait(&g_turn);
    vramscope_annotate_mark("iteration");
    const int64_t end = Now();
    took_us[step] = (uint32_t)((end - begin) / 1000);
    if (pause_us != 0) {
      const struct timespec rest = {0, pause_us * 1000L};
      nanosleep(&rest, NULL);
    }
  }
  g_ended = 1;
  pthread_barrier_wait(&g_turn);
  pthread_join(worker, NULL);
  qsort(took_us, (size_t)until, sizeof *took_us, Compare);
  printf("longest step %u us, 1 in 10000 above %u us, median %u us\n", until > 0 ? took_us[until - 1] : 0,
         took_us[until - until / 10000 - (until >= 10000)], took_us[until / 2]);
  return 0;
}
