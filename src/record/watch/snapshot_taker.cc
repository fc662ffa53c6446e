// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "record/child_process.h"
#include "record/watch/watches.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

constexpr std::chrono::hours kLongestWait{1};

}  // namespace

std::chrono::nanoseconds SnapshotTaker::Pause() const {
  return requested_ != 0 ? std::chrono::nanoseconds(0) : kLongestWait;
}

void SnapshotTaker::Request() {
  ++requested_;
  worker_.Wake();
}

bool SnapshotTaker::Look() {
  if (requested_ == 0)
    return true;
  Take();
  if (!worker_.stop())
    --requested_;
  return true;
}

void SnapshotTaker::Take() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const Captured snapshot = RunCaptured({self.string(), "snapshot", live_directory_}, {},
                                        kLongestWait, [this] { return worker_.stop().load(); });
  // Its only line is the file's name or an error.
  if (snapshot.ended)
    SayAtOnce(snapshot.output);
}

bool SummaryTaker::Look() {
  // A summary that is not finished when the program ends is given up: the last one follows.
  (void)Write(live_directory_, [this] { return worker_.stop().load(); });
  return true;
}

std::string SummaryTaker::Write(const std::string& recording,
                                const std::function<bool()>& give_up) const {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> command = {self.string(), "export", "--to", "summary", "-o", file_};
  // The program needs the processor more.
  if (recording == live_directory_)
    command.insert(command.end(), {"--nice", "10"});
  command.push_back(recording);
  const Captured written = RunCaptured(command, {}, kLongestWait, give_up);
  return written.ok() ? "" : written.output.substr(0, written.output.find('\n'));
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
      "--snapshot-on {}: this signal cannot be used: use SIGUSR1, SIGUSR2 or SIGRTMIN+N", name));
}

}  // namespace vramscope::cli
