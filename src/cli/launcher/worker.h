// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace vramscope::cli {

// A thread beside the recorded program. Whatever goes wrong in it ends it alone: an exception that
// left a thread would end the launcher, and with it the recording. A process that may have no more
// threads does without.
class Worker {
 public:
  Worker() = default;
  ~Worker() { Join(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Start(std::function<void()> work) noexcept;
  // The work must have been told to end.
  void Join() noexcept;
  bool IsStarted() const { return thread_.joinable(); }
  // Why it could not begin or ended early; "" where neither is so. After Join().
  const std::string& failure() const { return failure_; }

 private:
  std::thread thread_;
  std::string failure_;
};

}  // namespace vramscope::cli
