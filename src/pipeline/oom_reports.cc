// SPDX-License-Identifier: Apache-2.0
#include "pipeline/oom_reports.h"

#include <fmt/core.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "output/answers.h"
#include "query/oom/out_of_memory.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

// A program that is refused memory in a loop leaves so many files.
constexpr size_t kMostFiles = 3;
constexpr size_t kCauseLines = 3;

constexpr util::Content kOutOfMemoryContent = {
    "an out-of-memory report of vramscope",
    [](std::span<const uint8_t> start, uint64_t size_bytes) {
      constexpr std::string_view kBegin = output::kOutOfMemoryBegin;
      return size_bytes == 0 || (start.size() >= kBegin.size() &&
                                 std::memcmp(start.data(), kBegin.data(), kBegin.size()) == 0);
    }};

std::string FileOf(const std::string& path, size_t number) {
  constexpr std::string_view kExtension = ".vram";
  const std::string name =
      path.ends_with(kExtension) ? path.substr(0, path.size() - kExtension.size()) : path;
  return fmt::format("{}.oom-{}", name, number);
}

void RemoveOlder(const std::string& path) {
  for (size_t number = 1; number <= kMostFiles; ++number) {
    const std::string file = FileOf(path, number);
    if (const auto old = util::FindFile(file, kOutOfMemoryContent))
      (void)util::RemoveFile(file, *old);
  }
}

util::Status Save(const std::string& file, const std::string& text) {
  util::Result<util::AtomicFile> saved = util::AtomicFile::Create(file, &kOutOfMemoryContent);
  if (!saved)
    return saved.status();
  VRAMSCOPE_RETURN_IF_ERROR(saved->Write(text));
  return saved->Commit();
}

// The first ones, and the last: the one that ended the program, if any did.
std::vector<query::Refusal> WorthSaving(const std::vector<query::Refusal>& for_good) {
  std::vector<query::Refusal> chosen;
  for (const query::Refusal& refusal : for_good) {
    if (chosen.size() == kMostFiles)
      chosen.pop_back();
    chosen.push_back(refusal);
  }
  return chosen;
}

std::vector<std::string> FirstLines(const std::string& text, size_t count) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size() && lines.size() < count;) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

OutOfMemoryReports SaveOutOfMemoryReports(const tables::Recording& recording,
                                          const std::string& path,
                                          const output::Style& style,
                                          size_t told) {
  const auto refusals = query::FindRefusals(recording);
  if (!refusals)
    return {0, {refusals.status().message()}};
  std::vector<query::Refusal> for_good = *refusals;
  std::erase_if(for_good, [](const query::Refusal& refusal) { return refusal.served; });
  if (told != 0 && for_good.size() <= told)
    return {for_good.size(), {}};
  RemoveOlder(path);
  std::vector<std::string> lines;
  std::string where;
  size_t number = 0;
  for (const query::Refusal& refusal : WorthSaving(for_good)) {
    const auto what = query::ExplainRefusal(recording, refusal);
    if (!what)
      return {for_good.size(), {what.status().message()}};
    const std::string text = output::FormatOutOfMemory(*what, recording, style);
    lines = FirstLines(text, kCauseLines);
    const std::string file = FileOf(path, ++number);
    const util::Status saved = Save(file, text);
    where = "  " + (saved.ok() ? "saved: " + file : "not saved: " + saved.message());
  }
  if (!lines.empty())
    lines.push_back(output::Printable(where, style.utf8));
  return {for_good.size(), lines};
}

}  // namespace vramscope::cli
