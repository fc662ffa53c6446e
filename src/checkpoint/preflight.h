// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "resolve/immovable.h"
#include "util/status.h"

// A process that is to give its device memory back, as /proc shows it.
namespace vramscope::cli {

struct Target {
  pid_t pid = 0;
  uint64_t start_ticks = 0;    // identifies the process together with its number
  std::string name;            // "python3"
  std::string live_directory;  // of the recording that it writes; "" if it writes none
};

// Errors say in one line why this process cannot be asked for: there is none, it has ended, it is
// another user's, it has no CUDA. `may_be_ancestor`: it waits for us and knows that.
util::Result<Target> FindTarget(pid_t pid, bool may_be_ancestor);

// Whether that process still runs.
bool IsAlive(const Target& target);

// The live directory in the text of /proc/PID/maps: that of a live file that is mapped. "" for
// none. A seam for tests.
std::string LiveDirectoryOfMaps(const std::string& maps);

// How much host memory a process can still take: what its device memory goes into.

struct HostMemory {
  uint64_t free_bytes = UINT64_MAX;  // UINT64_MAX: nothing says
  std::string limited_by;            // "the host", "the limit of its cgroup /train"
};

// The least of MemAvailable and of what the limits of the process's control groups (both versions)
// leave. Swap does not count. Tests pass another `root` than "/".
HostMemory FreeHostMemory(pid_t pid, const std::string& root = "");

// Checks before the driver is asked to move a process's memory.

// "64.0 MiB of managed memory (2 allocations), 1 multicast object (NCCL_NVLS_ENABLE=0 avoids it)";
// "" if all moves.
std::string DescribeImmovable(const resolve::Movability& movability);

// Looks into the process's recording. An error says why the process must not be asked to yield;
// `*unchecked` is what could not be checked, "" if all could.
util::Status CheckRecording(const Target& target, std::string* unchecked);

// Whether the host has room for this many bytes of the process.
util::Status CheckHostMemory(const Target& target, uint64_t bytes);

}  // namespace vramscope::cli
