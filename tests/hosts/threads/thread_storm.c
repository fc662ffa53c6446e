// SPDX-License-Identifier: Apache-2.0
//
// Two thousand short threads, at most sixteen at once, each with a few tensors; a thread-specific
// destructor frees the last one after the recorder's own destructor may have run.
#include <pthread.h>
#include <stdio.h>

#include "host.h"

static pthread_key_t g_key;

static void FreeLate(void* pointer) {
  free_cpu(pointer);
}

static void* Worker(void* unused) {
  (void)unused;
  for (int i = 0; i < 5; ++i) free_cpu(alloc_cpu(256));
  pthread_setspecific(g_key, alloc_cpu(512));
  return NULL;
}

int main(void) {
  pthread_key_create(&g_key, FreeLate);
  for (int round = 0; round < 125; ++round) {
    pthread_t threads[16];
    for (int i = 0; i < 16; ++i) pthread_create(&threads[i], NULL, Worker, NULL);
    for (int i = 0; i < 16; ++i) pthread_join(threads[i], NULL);
  }
  puts("2000 threads");
  return 0;
}
