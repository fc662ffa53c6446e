// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "util/status.h"

// A process that is to give its device memory back, as /proc shows it.
namespace vramscope::cli {

struct Target {
  pid_t pid = 0;
  uint64_t start_ticks = 0;    // with the number, it is nobody else
  std::string name;            // "python3"
  std::string live_directory;  // of the recording that it writes; "" where it writes none
};

// Errors say in one line why this process cannot be asked for: there is none, it has ended, it is
// another user's, it has no CUDA. `may_be_ancestor`: it waits for us and knows that.
util::Result<Target> FindTarget(pid_t pid, bool may_be_ancestor);

// Whether that process still runs.
bool IsAlive(const Target& target);

// The live directory in the text of /proc/PID/maps: that of a live file that is mapped. "" for
// none. A seam for tests.
std::string LiveDirectoryOfMaps(const std::string& maps);

}  // namespace vramscope::cli
