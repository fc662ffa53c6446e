// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher/ring_keeper.h"

#include <dirent.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/launcher/subprocess.h"
#include "format/layout.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

// A thread alone claims up to 4 MiB at once.
constexpr uint64_t kLeastBytes = 16 << 20;
// What a fold leaves room for at least, however much the past needs.
constexpr uint64_t kLeastLiveBytes = 8 << 20;
constexpr std::chrono::milliseconds kPeriod{200};
constexpr std::chrono::hours kLongest{1};

struct Space {
  uint64_t live = 0;
  uint64_t past = 0;
};

// By what the files take of the disk: holes take nothing.
Space SpaceOf(const std::string& live_directory) {
  Space space;
  std::error_code error;
  for (std::filesystem::directory_iterator it(live_directory, error), end; !error && it != end;
       it.increment(error)) {
    struct stat info {};
    if (lstat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      continue;
    const bool is_past = it->path().extension() == format::kPastExtension;
    (is_past ? space.past : space.live) += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return space;
}

}  // namespace

util::Result<uint64_t> ParseRing(const std::string& text) {
  const auto size = util::ParseSize(text);
  if (!size)
    return util::Status::Error(
        fmt::format("--ring {}: no size: write it as in 256M or 1.5G", text));
  if (*size < kLeastBytes) {
    return util::Status::Error(
        fmt::format("--ring {}: too small: a thread writes up to 4 MiB at once: {} at least", text,
                    util::FormatBytes(kLeastBytes)));
  }
  return *size;
}

RingKeeper::RingKeeper(std::string live_directory, uint64_t size_bytes)
    : live_directory_(std::move(live_directory)), size_bytes_(size_bytes) {}

RingKeeper::~RingKeeper() {
  Stop();
}

void RingKeeper::Start() {
  worker_.Start([this] { Loop(); });
}

void RingKeeper::Loop() {
  while (worker_.Rest(kPeriod) && Look()) {
  }
}

// Folded is what is over three quarters of the ring, so that the rest is there while that is done,
// down to a half: each byte then is looked at twice or so.
bool RingKeeper::Look() {
  const Space space = SpaceOf(live_directory_);
  const uint64_t wanted = space.past + std::max(space.past / 2, kLeastLiveBytes);
  const uint64_t size = std::max(size_bytes_, wanted);
  const uint64_t high = std::max(size / 4 * 3, wanted);
  if (size > size_bytes_ && note_.empty()) {
    note_ = fmt::format(
        "--ring {} is too small for what is live and at the peak ({}): the recording took more",
        util::FormatBytes(size_bytes_), util::FormatBytes(space.past));
  }
  if (space.live + space.past <= high)
    return true;
  const uint64_t to = std::max(kLeastLiveBytes / 2, (high - std::min(high, space.past)) / 2);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const Captured fold =
      RunCaptured({self.string(), "fold", "--to", std::to_string(to), live_directory_}, {},
                  kLongest, &worker_.stop());
  if (fold.ok() || !fold.ended)
    return true;
  std::string_view why = fold.output;
  constexpr std::string_view kPrefix = "vramscope: ";
  if (why.starts_with(kPrefix))
    why.remove_prefix(kPrefix.size());
  note_ = fmt::format("--ring: the recording was not kept within its size: {}",
                      why.substr(0, why.find('\n')));
  return false;
}

}  // namespace vramscope::cli
