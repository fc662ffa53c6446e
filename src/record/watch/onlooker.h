// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>

#include "util/file.h"
#include "util/status.h"

namespace vramscope::cli {

// Waits for the end of a process that is not ours, or for a signal that asks to stop. From Open()
// on those signals (SIGINT, SIGTERM, SIGHUP, SIGQUIT) do not end this process; not thread-safe.
class Onlooker {
 public:
  // Errors name the process: "1234: the process does not exist".
  static util::Result<std::unique_ptr<Onlooker>> Open(pid_t pid);
  ~Onlooker();
  Onlooker(const Onlooker&) = delete;
  Onlooker& operator=(const Onlooker&) = delete;

  enum class Seen { kEnd, kSignal, kNothing };
  // Waits at most so long; without `limit` until there is something.
  Seen Wait(std::optional<std::chrono::nanoseconds> limit) const;

 private:
  Onlooker() = default;

  util::UniqueFd process_;
  util::UniqueFd signals_;
  sigset_t stops_{};
  sigset_t old_mask_{};
};

}  // namespace vramscope::cli
