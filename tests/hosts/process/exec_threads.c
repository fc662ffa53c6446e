// SPDX-License-Identifier: Apache-2.0
//
// One thread replaces the program while others allocate.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "host.h"

static void* Worker(void* unused) {
  (void)unused;
  for (;;) free_cpu(alloc_cpu(100));
  return NULL;
}

int main(int argc, char** argv) {
  if (argc == 2) {
    alloc_cpu(4096);
    puts("second image");
    return 6;
  }
  for (int i = 0; i < 4; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, Worker, NULL);
  }
  usleep(20000);
  execl(argv[0], argv[0], "again", (char*)NULL);
  return 1;
}
