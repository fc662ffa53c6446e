// SPDX-License-Identifier: Apache-2.0
#include "record/watch/worker.h"

#include <time.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace vramscope::cli {
namespace {

constexpr int kPausePerCpuTime = 400;

std::chrono::nanoseconds ThreadCpuTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// A short text needs no allocation, which could fail here.
void Set(std::string* failure, const char* text) noexcept {
  try {
    *failure = text;
  } catch (...) {
    *failure = "no memory";
  }
}

}  // namespace

void Worker::Start(std::function<void()> work) noexcept {
  try {
    thread_ = std::thread([this, work = std::move(work)]() noexcept {
      try {
        work();
      } catch (const std::exception& error) {
        Set(&failure_, error.what());
      } catch (...) {
        Set(&failure_, "unknown");
      }
    });
  } catch (const std::exception& error) {
    Set(&failure_, error.what());
  }
}

void Worker::Stop() {
  if (!IsStarted())
    return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_one();
  Join();
}

void Worker::Join() noexcept {
  if (thread_.joinable())
    thread_.join();
}

bool Worker::Rest(std::chrono::nanoseconds pause) {
  std::unique_lock<std::mutex> lock(mutex_);
  stop_changed_.wait_for(lock, pause, [this] { return stop_ || woken_; });
  woken_ = false;
  return !stop_;
}

void Worker::Wake() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    woken_ = true;
  }
  stop_changed_.notify_one();
}

bool Worker::RestUntil(std::chrono::steady_clock::time_point time) {
  std::unique_lock<std::mutex> lock(mutex_);
  return !stop_changed_.wait_until(lock, time, [this] { return stop_.load(); });
}

void LookPace::Begin() {
  began_ = ThreadCpuTime();
}

void LookPace::End() {
  pause_ = std::max(period_, kPausePerCpuTime * (ThreadCpuTime() - began_));
}

}  // namespace vramscope::cli
