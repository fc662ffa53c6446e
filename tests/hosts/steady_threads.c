// SPDX-License-Identifier: Apache-2.0
//
// Allocates on four threads until it is killed; prints a line once it is under way. Each thread
// counts its events, in order, in the sizes, so that a reader can tell whether one is missing.
#include <pthread.h>
#include <stdio.h>

#include "host.h"

static void* Worker(void* unused) {
  (void)unused;
  for (size_t i = 1;; ++i) free_cpu(alloc_cpu(i % 100000 + 1));
  return NULL;
}

int main(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, Worker, NULL);
  puts("running");
  fflush(stdout);
  pthread_join(threads[0], NULL);
  return 0;
}
