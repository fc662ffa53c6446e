// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "record/watch/worker.h"

namespace vramscope::cli {

struct ExitSeen {
  pid_t pid = 0;
  int64_t time_ns = 0;  // CLOCK_MONOTONIC
};

// Sees when recorded processes other than the command itself end. Their own last event can be half
// a second older, and until the end the GPU still counts their memory. A process that begins and
// ends between two looks at the live directory is not seen.
class ExitWatch {
 public:
  // `command`, the command's process, is left out: the launcher waits for it anyway.
  ExitWatch(std::string live_directory, pid_t command);
  ~ExitWatch();
  ExitWatch(const ExitWatch&) = delete;
  ExitWatch& operator=(const ExitWatch&) = delete;

  // False where this kernel has no descriptors of processes (before Linux 5.3).
  bool Start();
  // Idempotent.
  void Stop();
  // After Stop(), in the order of time.
  const std::vector<ExitSeen>& seen() const { return seen_; }
  // "" or why it ended early. After Stop().
  const std::string& failure() const { return worker_.failure(); }

 private:
  void Loop();
  void OpenNewProcesses();

  const std::string live_directory_;
  const pid_t command_;
  int wake_ = -1;  // an eventfd: readable when the thread is to stop
  Worker worker_;
  std::map<pid_t, int> descriptors_;  // -1: not ours to watch, or gone
  std::vector<ExitSeen> seen_;
};

}  // namespace vramscope::cli
