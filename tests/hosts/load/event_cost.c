// SPDX-License-Identifier: Apache-2.0
//
// Nanoseconds for one allocation and its free, over threads given as argument: run it plain and
// under the probe, the difference is two events.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "host.h"

enum { kPairs = 1000000 };

static void* Worker(void* result) {
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < kPairs; ++i) free_cpu(alloc_cpu(512));
  clock_gettime(CLOCK_MONOTONIC, &end);
  *(double*)result = ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / kPairs;
  return NULL;
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 1;
  pthread_t threads[64];
  double pair_ns[64] = {0};
  for (int i = 0; i < count && i < 64; ++i) pthread_create(&threads[i], NULL, Worker, &pair_ns[i]);
  double sum = 0;
  for (int i = 0; i < count && i < 64; ++i) {
    pthread_join(threads[i], NULL);
    sum += pair_ns[i];
  }
  printf("%.1f\n", sum / count);
  return 0;
}
