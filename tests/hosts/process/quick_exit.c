// SPDX-License-Identifier: Apache-2.0
//
// Ends by _exit, without destructors or atexit handlers.
#include <stdio.h>
#include <unistd.h>

#include "host.h"

int main(void) {
  for (int i = 1; i <= 50; ++i) alloc_cpu((size_t)i);
  printf("gone\n");
  fflush(stdout);
  _exit(3);
}
