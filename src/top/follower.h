// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tables/recording.h"
#include "util/file.h"
#include "util/status.h"

namespace vramscope::cli {

// A process that reads a live recording as it grows. It keeps the ledger, so a reading costs what
// was recorded since the last one. Each reading is made by a copy of that process (fork), which
// finishes the ledger: tables of the memory that is live now, without what was freed before.
class Follower {
 public:
  explicit Follower(std::string live_directory) : live_directory_(std::move(live_directory)) {}
  ~Follower() { End(); }
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // The memory of this instant. Adds the processor time that this took to *cpu_ns. After an error
  // the next call begins anew.
  util::Result<std::unique_ptr<tables::Recording>> Read(int64_t* cpu_ns);

 private:
  util::Status Start();
  void End();

  const std::string live_directory_;
  pid_t child_ = 0;
  util::UniqueFd tables_;
  util::UniqueFd ask_;
  util::UniqueFd answer_;
  int64_t cpu_ns_ = 0;  // of the child so far
};

// That process repeats this: it writes tables to the file `fd`, writes its processor time to
// stdout, and waits for a byte on stdin.
util::Status FollowRecording(const std::string& live_directory, int fd);

}  // namespace vramscope::cli
