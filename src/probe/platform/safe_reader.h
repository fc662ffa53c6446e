// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>
#include <unistd.h>

namespace vramscope::probe {

// Reads memory of this process of which nothing is certain: a wrong address is an error and not a
// fault. One system call a read.
struct SafeReader {
  template <class T>
  bool Get(const char* address, T* value) const {
    iovec local{value, sizeof *value};
    iovec remote{const_cast<char*>(address), sizeof *value};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) ==
           static_cast<ssize_t>(sizeof *value);
  }
};

}  // namespace vramscope::probe
