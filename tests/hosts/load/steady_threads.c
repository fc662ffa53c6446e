// SPDX-License-Identifier: Apache-2.0
//
// Allocates on four threads until it is killed. Thread t counts its completed pairs of allocation
// and free in the t-th 64-bit word of the file named by its argument. The file is mapped shared and
// outlives it, so a test knows what the recording must contain.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host.h"

enum { kThreads = 4 };

static volatile uint64_t* g_pairs;

static void* Worker(void* index) {
  volatile uint64_t* pairs = &g_pairs[(uintptr_t)index];
  for (;;) {
    free_cpu(alloc_cpu(*pairs % 100000 + 1));
    *pairs = *pairs + 1;
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, 4096) != 0) return 2;
  void* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return 2;
  g_pairs = page;
  pthread_t threads[kThreads];
  for (uintptr_t i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, Worker, (void*)i);
  puts("running");
  fflush(stdout);
  pthread_join(threads[0], NULL);
  return 0;
}
