// SPDX-License-Identifier: Apache-2.0
// Runs programs of allocator calls on stdin through vramscope's model of PyTorch's
// allocator, and prints what each line did. oracle.cc does the same with the real allocator.
#include <iostream>
#include <string>

#include "query/testing/allocator_program.h"

int main() {
  std::ios::sync_with_stdio(false);
  vramscope::query::AllocatorProgram program;
  for (std::string line; std::getline(std::cin, line);) {
    if (!line.empty() && line.front() != '#')
      std::cout << program.Run(line) << '\n';
  }
  return 0;
}
