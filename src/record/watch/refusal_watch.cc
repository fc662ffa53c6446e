// SPDX-License-Identifier: Apache-2.0
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
#include "record/watch/watches.h"
#include "util/file.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kLookPeriod{100};
constexpr milliseconds kSettled{1000};
constexpr milliseconds kLongestReport{120'000};
constexpr int kMostReports = 8;
// After a report that took a second there is none for ten.
constexpr int kRestFactor = 10;

}  // namespace

RefusalWatch::RefusalWatch(std::string live_directory, std::string output)
    : Watch(std::move(live_directory)), output_(std::move(output)), pace_(kLookPeriod) {}

RefusalWatch::Refusals RefusalWatch::FindRefusals() const {
  Refusals found;
  std::error_code error;
  for (fs::directory_iterator it(live_directory_, error), end; !error && it != end;
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

// A process whose file this user cannot write continues after its own time limit.
void RefusalWatch::Release() const {
  if (last_.waiting.empty())
    return;
  const auto directory = util::OwnedDirectory::Open(live_directory_);
  for (const std::string& name : last_.waiting) {
    constexpr uint32_t kWord = format::kReported;
    if (const auto file = directory ? directory->Open(name, LiveFileContent()) : directory.status())
      (void)!pwrite(file->get(), &kWord, sizeof kWord, offsetof(format::FileHeader, report));
  }
}

void RefusalWatch::Begin() {
  changed_ = next_report_ = Clock::now();
}

bool RefusalWatch::Look() {
  pace_.Begin();
  Refusals found = FindRefusals();
  pace_.End();
  const Clock::time_point now = Clock::now();
  if (!found.CountsAre(last_))
    changed_ = now;
  // The names of what the program has built arrive just after the failure, unless it waits.
  const bool is_whole = found.CountsAre(last_) || !found.waiting.empty();
  const bool is_settled = found.gave_up != reported_.gave_up || now - changed_ >= kSettled;
  last_ = std::move(found);
  if (!last_.CountsAre(reported_) && is_whole && is_settled && now >= next_report_ &&
      reports_ < kMostReports) {
    reported_ = last_;
    ++reports_;
    Tell();
    next_report_ = Clock::now() + (Clock::now() - now) * kRestFactor;
  }
  Release();
  return true;
}

void RefusalWatch::Tell() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const Captured report =
      RunCaptured({self.string(), "refused", live_directory_, output_, std::to_string(told_)}, {},
                  kLongestReport, [this] { return worker_.stop().load(); });
  if (!report.ok())
    return;
  // The first line is the number of known failures, the rest is about the last one if it is new.
  const std::string_view text = report.output;
  size_t known = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), known);
  if (failed != std::errc() || *end != '\n' || known <= told_)
    return;
  told_ = known;
  SayAtOnce(text.substr(static_cast<size_t>(end - text.data()) + 1));
}

}  // namespace vramscope::cli
