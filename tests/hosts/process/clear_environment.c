// SPDX-License-Identifier: Apache-2.0
//
// Executes a child with nothing in its environment but the library path. The child allocates on the
// driver where there is one, and stays a while.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

static void UseDriver(void) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*set_current)(void*) = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  int (*alloc)(unsigned long long*, size_t) =
      (int (*)(unsigned long long*, size_t))dlsym(driver, "cuMemAlloc_v2");
  void* context = NULL;
  unsigned long long address = 0;
  if (init(0) != 0 || retain(&context, 0) != 0 || set_current(context) != 0 || alloc(&address, 64 << 20) != 0)
    exit(3);
}

int main(int argc, char** argv) {
  if (argc == 2) {
    printf("%s\n", getenv("VRAMSCOPE_DIR") == NULL && getenv("LD_PRELOAD") == NULL ? "cleared" : "forced");
    fflush(stdout);
    alloc_cpu(30);
    UseDriver();
    sleep(5);  // for a few looks of the launcher, on a busy machine too
    return 4;
  }
  alloc_cpu(10);
  const pid_t child = fork();
  if (child == 0) {
    const char* const path = getenv("LD_LIBRARY_PATH");
    const char* const books = getenv("VRAMSCOPE_FAKE_BOOKS");
    char text[2][4096];
    snprintf(text[0], sizeof text[0], "LD_LIBRARY_PATH=%s", path != NULL ? path : "");
    snprintf(text[1], sizeof text[1], "VRAMSCOPE_FAKE_BOOKS=%s", books != NULL ? books : "");
    char* const words[] = {argv[0], "child", NULL};
    char* const environment[] = {text[0], books != NULL ? text[1] : NULL, NULL};
    execve(argv[0], words, environment);
    _exit(9);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}
