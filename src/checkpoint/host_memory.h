// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

// How much host memory a process can still take: what its device memory goes into.
namespace vramscope::cli {

struct HostMemory {
  uint64_t free_bytes = UINT64_MAX;  // UINT64_MAX: nothing says
  std::string limited_by;            // "the host", "the limit of its cgroup /train"
};

// The least of MemAvailable and of what the limits of the process's control groups (both versions)
// leave. Swap does not count. `root` stands for "/" in tests.
HostMemory FreeHostMemory(pid_t pid, const std::string& root = "");

}  // namespace vramscope::cli
