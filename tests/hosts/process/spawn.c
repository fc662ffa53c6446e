// SPDX-License-Identifier: Apache-2.0
//
// Children by posix_spawn, by system and by popen, from several threads while others allocate.
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

extern char** environ;
static const char* g_self;
static atomic_bool g_stop;

static void* Allocate(void* unused) {
  (void)unused;
  while (!atomic_load(&g_stop)) free_cpu(alloc_cpu(100));
  return NULL;
}

static void* Spawn(void* unused) {
  (void)unused;
  for (int i = 0; i < 3; ++i) {
    pid_t child = 0;
    char* const words[] = {(char*)g_self, "child", NULL};
    if (posix_spawn(&child, g_self, NULL, NULL, words, environ) != 0) exit(9);
    int status = 0;
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) != 4) exit(8);
  }
  return NULL;
}

int main(int argc, char** argv) {
  g_self = argv[0];
  if (argc == 2) {
    for (int i = 0; i < 7; ++i) alloc_cpu(30);
    return 4;
  }
  pthread_t threads[4];
  pthread_create(&threads[0], NULL, Allocate, NULL);
  pthread_create(&threads[1], NULL, Allocate, NULL);
  pthread_create(&threads[2], NULL, Spawn, NULL);
  pthread_create(&threads[3], NULL, Spawn, NULL);
  pthread_join(threads[2], NULL);
  pthread_join(threads[3], NULL);
  char command[4096];
  snprintf(command, sizeof command, "'%s' child", g_self);
  const int by_system = system(command);
  FILE* const pipe = popen(command, "r");
  const int by_popen = pclose(pipe);
  atomic_store(&g_stop, 1);
  pthread_join(threads[0], NULL);
  pthread_join(threads[1], NULL);
  printf("%d %d\n", WEXITSTATUS(by_system), WEXITSTATUS(by_popen));
  return 0;
}
