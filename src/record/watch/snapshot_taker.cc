// SPDX-License-Identifier: Apache-2.0
#include "record/watch/snapshot_taker.h"

#include <fmt/core.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "record/child_process.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

constexpr std::chrono::hours kLongest{1};

}  // namespace

SnapshotTaker::SnapshotTaker(std::string live_directory)
    : live_directory_(std::move(live_directory)) {}

SnapshotTaker::~SnapshotTaker() {
  Stop();
}

void SnapshotTaker::Start() {
  worker_.Start([this] { Loop(); });
}

void SnapshotTaker::Request() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++requested_;
  }
  changed_.notify_one();
}

void SnapshotTaker::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  worker_.Join();
}

void SnapshotTaker::Loop() {
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || requested_ != 0; });
      if (stop_)
        return;
    }
    Take();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stop_)
      return;
    --requested_;
  }
}

void SnapshotTaker::Take() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const Captured snapshot = RunCaptured({self.string(), "snapshot", live_directory_}, {}, kLongest,
                                        [this] { return stop_.load(); });
  // Its one line, as it says it: the file's name, or what is wrong.
  if (snapshot.ended)
    SayAtOnce(snapshot.output);
}

util::Result<int> SnapshotSignal(const std::string& name) {
  std::string_view text = name;
  if (text.starts_with("SIG"))
    text.remove_prefix(3);
  if (text == "USR1")
    return SIGUSR1;
  if (text == "USR2")
    return SIGUSR2;
  constexpr std::string_view kRealTime = "RTMIN+";
  if (text.starts_with(kRealTime)) {
    text.remove_prefix(kRealTime.size());
    const int number = util::WholeNumber<int>(text).value_or(-1);
    if (number >= 0 && number <= SIGRTMAX - SIGRTMIN)
      return SIGRTMIN + number;
  }
  return util::Status::Error(fmt::format(
      "--snapshot-on {}: not for a snapshot: choose SIGUSR1, SIGUSR2 or SIGRTMIN+N", name));
}

}  // namespace vramscope::cli
