// SPDX-License-Identifier: Apache-2.0
//
// Replaces itself by exec with the same process id: two files, and the first image's memory is gone.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "host.h"

int main(int argc, char** argv) {
  alloc_cpu(4096);
  if (argc == 1) {
    execl(argv[0], argv[0], "again", (char*)NULL);
    return 1;
  }
  puts("second image");
  return 0;
}
