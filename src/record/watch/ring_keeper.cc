// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "format/layout.h"
#include "pipeline/compact/compaction.h"
#include "record/child_process.h"
#include "record/watch/watches.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

// Less leaves no room for history beside the chunks that threads write.
constexpr uint64_t kLeastBytes = 16 << 20;
// A compaction leaves at least this much for live files, however much the past needs.
constexpr uint64_t kLeastLiveBytes = 8 << 20;
constexpr std::chrono::milliseconds kRoundPeriod{200};
constexpr std::chrono::milliseconds kShortestPeriod{10};
constexpr std::chrono::hours kLongestRound{1};
// A compaction has low priority, so that it leaves the processor to the program.
constexpr int kNice = 10;
constexpr unsigned kMostDropsOnly = 64;
// Over so long the rate is taken at which the directory grows.
constexpr double kRateSeconds = 0.5;

}  // namespace

util::Result<uint64_t> ParseRing(const std::string& text) {
  const auto size = util::ParseSize(text);
  if (!size)
    return util::Status::Error(
        fmt::format("--ring {}: is not a size: use a size such as 256M or 1.5G", text));
  if (*size < kLeastBytes) {
    return util::Status::Error(fmt::format("--ring {}: is too small: use {} or more", text,
                                           util::FormatBytes(kLeastBytes)));
  }
  return *size;
}

// So often that half of what is left does not become full meanwhile.
std::chrono::nanoseconds RingKeeper::Pause() const {
  const uint64_t left = high_bytes_ - std::min(high_bytes_, now_.total());
  const double seconds = static_cast<double>(left) / 2 / std::max(bytes_each_second_, 1.0);
  return std::clamp<std::chrono::nanoseconds>(
      std::chrono::nanoseconds(static_cast<int64_t>(std::min(seconds, 1.0) * 1e9)), kShortestPeriod,
      kRoundPeriod);
}

// By what the files take of the disk: holes take nothing.
RingKeeper::Space RingKeeper::Measure() {
  Space space;
  std::error_code error;
  for (std::filesystem::directory_iterator it(live_directory_, error), end; !error && it != end;
       it.increment(error)) {
    struct stat info {};
    if (lstat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      continue;
    const bool is_past = it->path().extension() == format::kPastExtension;
    (is_past ? space.past : space.live) += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  const auto time = std::chrono::steady_clock::now();
  const std::chrono::duration<double> passed = time - measured_;
  if (passed.count() > 0.005) {
    const double grown = static_cast<double>(space.total()) - static_cast<double>(now_.total());
    // Files grow in steps, and space is given back in between.
    const double weight = std::exp(-passed.count() / kRateSeconds);
    if (grown >= 0)
      bytes_each_second_ = weight * bytes_each_second_ + (1 - weight) * grown / passed.count();
    measured_ = time;
    now_ = space;
  }
  most_bytes_ = std::max(most_bytes_, space.total());
  most_past_bytes_ = std::max(most_past_bytes_, space.past);
  return space;
}

RingKeeper::Outcome RingKeeper::Run(const std::vector<std::string>& words, uint64_t limit_bytes) {
  std::error_code error;
  std::vector<std::string> command = {
      std::filesystem::read_symlink("/proc/self/exe", error).string(), "compact"};
  command.insert(command.end(), words.begin(), words.end());
  command.push_back(live_directory_);
  bool is_over = false;
  const Captured child = RunCaptured(command, {}, kLongestRound, [&] {
    is_over = is_over || Measure().total() > limit_bytes;
    return is_over || worker_.stop();
  });
  Measure();
  if (!child.ended)
    return is_over && !worker_.stop() ? Outcome::kTooSlow : Outcome::kStopped;
  std::vector<std::string> instants;
  std::string why;
  for (size_t begin = 0; begin < child.output.size();) {
    const size_t end = std::min(child.output.find('\n', begin), child.output.size());
    std::string line = child.output.substr(begin, end - begin);
    constexpr std::string_view kPrefix = "vramscope: ";
    if (line.starts_with(kPrefix))
      why = line.substr(kPrefix.size());
    else
      instants.push_back(std::move(line));
    begin = end + 1;
  }
  if (!instants.empty())
    instants_ = std::move(instants);
  if (child.ok())
    return Outcome::kDone;
  if (WIFSIGNALED(child.wait_status))
    return Outcome::kStopped;  // stopped from outside, or out of memory: the next one may have more
  if (why == compact::kHeldByReader) {
    was_held_ = true;
    return Outcome::kHeld;
  }
  failed_ = why;
  return Outcome::kFailed;
}

bool RingKeeper::Look() {
  const Space space = Measure();
  const uint64_t wanted = space.past + std::max(space.past / 2, kLeastLiveBytes);
  const uint64_t size = std::max(size_bytes_, wanted);
  const uint64_t limit = size - size / 16;
  const auto needed = static_cast<uint64_t>(
      1.5 * bytes_each_second_ * static_cast<double>(space.total()) / compacted_each_second_);
  const uint64_t highest = size / 4 * 3;
  const uint64_t lowest = std::min(highest, space.past + std::max(space.past / 2, size / 4));
  high_bytes_ = std::clamp(limit - std::min(limit, needed), lowest, highest);
  if (space.total() <= high_bytes_)
    return true;
  const uint64_t to =
      std::max(kLeastLiveBytes / 2, (high_bytes_ - std::min(high_bytes_, space.past)) / 2);
  if (space.total() <= limit && drops_only_ == 0)
    return Compact(to, limit);
  drops_only_ -= std::min(drops_only_, 1U);
  return Drop(to);
}

bool RingKeeper::Compact(uint64_t to_bytes, uint64_t limit_bytes) {
  const double bytes = static_cast<double>(now_.total());
  const double seconds = bytes / compacted_each_second_;
  const bool is_urgent =
      static_cast<double>(limit_bytes) - bytes < 3 * seconds * bytes_each_second_;
  const auto begin = std::chrono::steady_clock::now();
  switch (Run({"--to", std::to_string(to_bytes), "--nice", std::to_string(is_urgent ? 0 : kNice)},
              limit_bytes)) {
    case Outcome::kDone: {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      compacted_each_second_ = bytes / std::max(took.count(), 0.001);
      too_slow_ = 0;
      return true;
    }
    case Outcome::kTooSlow:
      compacted_each_second_ /= 2;
      drops_only_ = std::min(1U << std::min(too_slow_++, 16U), kMostDropsOnly) - 1;
      return Drop(to_bytes);
    case Outcome::kFailed:
      return false;
    default:
      return true;
  }
}

bool RingKeeper::Drop(uint64_t to_bytes) {
  std::vector<std::string> words = {"--drop", "--to", std::to_string(to_bytes)};
  for (const std::string& instant : instants_)
    words.insert(words.end(), {"--instant", instant});
  return Run(words, UINT64_MAX) != Outcome::kFailed;
}

std::string RingKeeper::note() {
  const uint64_t most = std::max(most_bytes_, Measure().total());
  if (!failed_.empty())
    return "--ring: the recording became larger than its limit: " + failed_;
  if (most <= size_bytes_)
    return "";
  const std::string why =
      was_held_ ? std::string(compact::kHeldByReader)
      : most_past_bytes_ + kLeastLiveBytes > size_bytes_
          ? fmt::format("live memory and the peak need {}", util::FormatBytes(most_past_bytes_))
          : std::string("the program records faster than old history can be dropped");
  return fmt::format("--ring {} was exceeded by {}: {}", util::FormatBytes(size_bytes_),
                     util::FormatBytes(most - size_bytes_), why);
}

}  // namespace vramscope::cli
