// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>

#include "record/watch/worker.h"
#include "util/status.h"

namespace vramscope::cli {

// Takes snapshots of a recording on request, one after the other, each in a process of its own:
// what goes wrong there harms neither the recording nor its program.
class SnapshotTaker {
 public:
  explicit SnapshotTaker(std::string live_directory);
  ~SnapshotTaker();
  SnapshotTaker(const SnapshotTaker&) = delete;
  SnapshotTaker& operator=(const SnapshotTaker&) = delete;

  void Start();
  void Request();
  // One that is not finished is given up: the recording is about to be finished itself. Idempotent.
  void Stop();
  // Snapshots that were asked for and not taken. After Stop().
  size_t given_up() const { return requested_; }
  // "" or why it ended early. After Stop().
  const std::string& failure() const { return worker_.failure(); }

 private:
  void Loop();
  void Take();

  const std::string live_directory_;
  Worker worker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t requested_ = 0;
  std::atomic<bool> stop_{false};  // set under the mutex; a snapshot under way looks at it
};

// The number of a signal that `run` may take for itself: SIGUSR1, SIGUSR2 or SIGRTMIN+N.
util::Result<int> SnapshotSignal(const std::string& name);

}  // namespace vramscope::cli
