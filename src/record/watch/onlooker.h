// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "util/file.h"
#include "util/status.h"

namespace vramscope::cli {

// SIGINT, SIGTERM, SIGHUP and SIGQUIT, which do not end this process while the object lives. Not
// thread-safe: it is made before other threads.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Can be read when one has come.
  int fd() const { return fd_.get(); }
  // Whether one had come; forgets it.
  bool Take() const;

 private:
  sigset_t stops_{};
  sigset_t old_mask_{};
  util::UniqueFd fd_;
};

// Waits for the end of a process that is not ours, or for a signal that asks to stop. From Open()
// on those signals (SIGINT, SIGTERM, SIGHUP, SIGQUIT) do not end this process; not thread-safe.
class Onlooker {
 public:
  // Errors name the process: "1234: the process does not exist".
  static util::Result<std::unique_ptr<Onlooker>> Open(pid_t pid);
  enum class Seen { kEnd, kSignal, kNothing };
  // Waits at most so long; without `limit` until there is something.
  Seen Wait(std::optional<std::chrono::nanoseconds> limit) const;

 private:
  explicit Onlooker(util::UniqueFd process) : process_(std::move(process)) {}

  util::UniqueFd process_;
  StopSignals signals_;
};

}  // namespace vramscope::cli
