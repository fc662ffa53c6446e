// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
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
  // Tells the work to end, and waits until it has. Idempotent.
  void Stop();
  // The same for work that has already been stopped in another way.
  void Join() noexcept;
  bool IsStarted() const { return thread_.joinable(); }
  // Why it could not begin or ended early; "" if neither is so. After Join().
  const std::string& failure() const { return failure_; }

  // By the work: waits that long, or until it is to end. False if it is.
  bool Rest(std::chrono::nanoseconds pause);
  // Ends the rest, with true, or the next one.
  void Wake();
  bool RestUntil(std::chrono::steady_clock::time_point time);
  // True if the work is to end: for what it is in the middle of.
  const std::atomic<bool>& stop() const { return stop_; }

 private:
  std::thread thread_;
  std::string failure_;
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  std::atomic<bool> stop_{false};  // set under the mutex
  bool woken_ = false;             // under the mutex
};

// When such a thread looks again: after `period`, and so late that its looks take a four-hundredth
// of a processor at most. Only processor time counts; a look that waited cost nothing.
class LookPace {
 public:
  explicit LookPace(std::chrono::nanoseconds period) : period_(period), pause_(period) {}

  // By the thread that looks, around each look.
  void Begin();
  void End();
  std::chrono::nanoseconds Pause() const { return pause_; }

 private:
  const std::chrono::nanoseconds period_;
  std::chrono::nanoseconds pause_;
  std::chrono::nanoseconds began_{};  // in this thread's time
};

}  // namespace vramscope::cli
