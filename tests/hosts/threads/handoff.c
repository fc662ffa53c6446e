// SPDX-License-Identifier: Apache-2.0
//
// Two pairs of threads: one allocates and passes the memory on, the other frees it, until standard
// input ends. When it says that it runs, both have handed something over. At no instant more than
// kQueued + 2 tensors of a pair are live. It rests now and then, so that its recording stays small.
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "host.h"

enum { kPairs = 2, kQueued = 30, kBurst = 100, kRestUs = 5000 };

typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  void* queue[kQueued];
  unsigned taken, put;
  bool ended;
} Pair;

static Pair g_pairs[kPairs];

static void* Allocate(void* argument) {
  Pair* const pair = argument;
  for (unsigned i = 0;; ++i) {
    void* const tensor = alloc_cpu(i % 1000 + 1);
    if (i % kBurst == 0) usleep(kRestUs);
    pthread_mutex_lock(&pair->mutex);
    while (pair->put - pair->taken == kQueued && !pair->ended)
      pthread_cond_wait(&pair->changed, &pair->mutex);
    const bool ended = pair->ended;
    if (!ended) pair->queue[pair->put++ % kQueued] = tensor;
    pthread_cond_broadcast(&pair->changed);
    pthread_mutex_unlock(&pair->mutex);
    if (ended) {
      free_cpu(tensor);
      return NULL;
    }
  }
}

static void* Free(void* argument) {
  Pair* const pair = argument;
  for (;;) {
    pthread_mutex_lock(&pair->mutex);
    while (pair->put == pair->taken && !pair->ended)
      pthread_cond_wait(&pair->changed, &pair->mutex);
    void* const tensor =
        pair->put == pair->taken ? NULL : pair->queue[pair->taken++ % kQueued];
    pthread_cond_signal(&pair->changed);
    pthread_mutex_unlock(&pair->mutex);
    if (tensor == NULL) return NULL;
    free_cpu(tensor);
  }
}

int main(void) {
  pthread_t threads[2 * kPairs];
  for (int i = 0; i < kPairs; ++i) {
    pthread_mutex_init(&g_pairs[i].mutex, NULL);
    pthread_cond_init(&g_pairs[i].changed, NULL);
    pthread_create(&threads[2 * i], NULL, Allocate, &g_pairs[i]);
    pthread_create(&threads[2 * i + 1], NULL, Free, &g_pairs[i]);
  }
  for (int i = 0; i < kPairs; ++i) {
    pthread_mutex_lock(&g_pairs[i].mutex);
    while (g_pairs[i].put == 0) pthread_cond_wait(&g_pairs[i].changed, &g_pairs[i].mutex);
    pthread_mutex_unlock(&g_pairs[i].mutex);
  }
  puts("running");
  fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  for (int i = 0; i < kPairs; ++i) {
    pthread_mutex_lock(&g_pairs[i].mutex);
    g_pairs[i].ended = true;
    pthread_cond_broadcast(&g_pairs[i].changed);
    pthread_mutex_unlock(&g_pairs[i].mutex);
  }
  for (int i = 0; i < 2 * kPairs; ++i) pthread_join(threads[i], NULL);
  return 0;
}
