// SPDX-License-Identifier: Apache-2.0
//
// Forks while another thread holds the loader's lock on its list of libraries, which no fork
// resets: a child that asked for that lock would wait for ever. The children allocate, as data
// loaders do.
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

static int g_held[2];
static int g_release[2];

static int Hold(struct dl_phdr_info* info, size_t size, void* data) {
  (void)info, (void)size, (void)data;
  char byte = 0;
  if (write(g_held[1], &byte, 1) != 1 || read(g_release[0], &byte, 1) != 1)
    exit(9);
  return 1;
}

static void* Walk(void* data) {
  dl_iterate_phdr(Hold, NULL);
  return data;
}

int main(int argc, char** argv) {
  if (pipe(g_held) != 0 || pipe(g_release) != 0)
    return 9;
  if (argc == 2 && strcmp(argv[1], "later") == 0)
    free_cpu(alloc_cpu(1));
  for (int i = 0; i < 3; ++i) {
    pthread_t thread;
    char byte = 0;
    if (pthread_create(&thread, NULL, Walk, NULL) != 0 || read(g_held[0], &byte, 1) != 1)
      return 9;
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      for (int n = 0; n < 100; ++n)
        free_cpu(alloc_cpu(64));
      _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    if (write(g_release[1], &byte, 1) != 1)
      return 9;
    pthread_join(thread, NULL);
  }
  return 0;
}
