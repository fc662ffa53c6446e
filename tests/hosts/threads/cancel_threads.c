// SPDX-License-Identifier: Apache-2.0
//
// Threads that are cancelled while they allocate: at once at any place, or at the next cancellation
// point. The recorder must not be a cancellation point. Clean-up handlers and thread-specific
// destructors still free tensors then.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <vramscope/annotate.h>

#include "host.h"

static pthread_key_t g_key;
static int g_at_once;
static volatile int g_running;

static void FreeLate(void* pointer) {
  free_cpu(pointer);
}

static void* Worker(void* unused) {
  (void)unused;
  pthread_setspecific(g_key, alloc_cpu(512));
  pthread_cleanup_push(FreeLate, alloc_cpu(256));
  __atomic_add_fetch(&g_running, 1, __ATOMIC_SEQ_CST);
  if (g_at_once) {
    // Nothing below here calls malloc, which is not safe to be cancelled in.
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;) vramscope_annotate_tag(&g_key, "tag", 1);
  }
  for (;;) {
    for (int i = 0; i < 1000; ++i) free_cpu(alloc_cpu(128));
    pthread_testcancel();
  }
  pthread_cleanup_pop(0);
  return NULL;
}

int main(int argc, char** argv) {
  g_at_once = argc == 2 && strcmp(argv[1], "at-once") == 0;
  pthread_key_create(&g_key, FreeLate);
  int cancelled = 0;
  for (int round = 0; round < 8; ++round) {
    pthread_t threads[4];
    g_running = 0;
    for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, Worker, NULL);
    while (__atomic_load_n(&g_running, __ATOMIC_SEQ_CST) < 4) usleep(100);
    usleep((useconds_t)(round * 100));
    for (int i = 0; i < 4; ++i) pthread_cancel(threads[i]);
    for (int i = 0; i < 4; ++i) {
      void* result = NULL;
      pthread_join(threads[i], &result);
      cancelled += result == PTHREAD_CANCELED;
    }
  }
  printf("%d\n", cancelled);
  return 0;
}
