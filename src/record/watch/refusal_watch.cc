// SPDX-License-Identifier: Apache-2.0
#include "record/watch/refusal_watch.h"

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "format/layout.h"
#include "pipeline/live_directory.h"
#include "record/child_process.h"
#include "util/file.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPeriod{100};
constexpr milliseconds kSettled{1000};
constexpr milliseconds kLongest{120'000};
constexpr int kMostReports = 8;
// After a report that took a second there is none for ten.
constexpr int kRestFactor = 10;

// What the headers of a recording's live files say.
struct Refusals {
  uint64_t refused = 0;              // by the driver
  uint64_t gave_up = 0;              // by caching allocators, each of which asks the driver twice
  std::vector<std::string> waiting;  // files of processes that wait for the report

  bool CountsAre(const Refusals& other) const {
    return refused == other.refused && gave_up == other.gave_up;
  }
};

Refusals LookForRefusals(const std::string& live_directory) {
  Refusals found;
  std::error_code error;
  for (fs::directory_iterator it(live_directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != ".vrl")
      continue;
    const auto file = util::OpenRegular(it->path(), util::Links::kRefuse, nullptr);
    format::FileHeader header{};
    if (!file || pread(file->get(), static_cast<void*>(&header), sizeof header, 0) !=
                     static_cast<ssize_t>(sizeof header))
      continue;
    found.refused += header.refused.load(std::memory_order_relaxed);
    found.gave_up += header.gave_up.load(std::memory_order_relaxed);
    if (header.report.load(std::memory_order_relaxed) == format::kAwaited)
      found.waiting.push_back(it->path().filename());
  }
  return found;
}

// Lets those processes continue. A process whose file this user cannot write continues after its
// own time limit.
void Release(const std::string& live_directory, const std::vector<std::string>& waiting) {
  if (waiting.empty())
    return;
  const auto directory = util::OwnedDirectory::Open(live_directory);
  for (const std::string& name : waiting) {
    constexpr uint32_t kWord = format::kReported;
    if (const auto file = directory ? directory->Open(name, LiveFileContent()) : directory.status())
      (void)!pwrite(file->get(), &kWord, sizeof kWord, offsetof(format::FileHeader, report));
  }
}

}  // namespace

RefusalWatch::RefusalWatch(std::string live_directory, std::string output)
    : live_directory_(std::move(live_directory)), output_(std::move(output)) {}

RefusalWatch::~RefusalWatch() {
  Stop();
}

void RefusalWatch::Start() {
  worker_.Start([this] { Loop(); });
}

void RefusalWatch::Loop() {
  Refusals told, last;
  Clock::time_point changed = Clock::now(), next_report = changed;
  LookPace pace(kPeriod);
  for (int reports = 0; worker_.Rest(pace.Pause());) {
    pace.Begin();
    Refusals found = LookForRefusals(live_directory_);
    pace.End();
    const Clock::time_point now = Clock::now();
    if (!found.CountsAre(last))
      changed = now;
    // Names of what the program has built come a moment after the refusal, unless it waits.
    const bool is_whole = found.CountsAre(last) || !found.waiting.empty();
    const bool is_settled = found.gave_up != told.gave_up || now - changed >= kSettled;
    last = std::move(found);
    if (!last.CountsAre(told) && is_whole && is_settled && now >= next_report &&
        reports < kMostReports) {
      told = last;
      ++reports;
      Tell();
      next_report = Clock::now() + (Clock::now() - now) * kRestFactor;
    }
    Release(live_directory_, last.waiting);
  }
}

void RefusalWatch::Tell() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const Captured report =
      RunCaptured({self.string(), "refused", live_directory_, output_, std::to_string(told_)}, {},
                  kLongest, [this] { return worker_.stop().load(); });
  if (!report.ok())
    return;
  // "3": of how many it knows; the lines that say so of the last one, where any is news.
  const std::string_view text = report.output;
  size_t known = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), known);
  if (failed != std::errc() || *end != '\n' || known <= told_)
    return;
  told_ = known;
  SayAtOnce(text.substr(static_cast<size_t>(end - text.data()) + 1));
}

}  // namespace vramscope::cli
