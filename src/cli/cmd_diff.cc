// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/answers.h"
#include "output/names.h"
#include "output/terminal.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "query/diff/diff.h"
#include "query/dimensions/report.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

constexpr size_t kBuckets = 500;  // of a history on the page

struct DiffArguments {
  std::string a;
  std::string b;
  std::string fail_above;
  std::string html;
  size_t top = 10;
  bool json = false;
  bool no_native_names = false;
};

// By how much B may exceed A: bytes, or a share of A's peak.
struct GrowthLimit {
  uint64_t bytes = 0;
  std::optional<double> percent;

  double BytesOf(const query::Diff& diff) const {
    return percent ? *percent / 100 * static_cast<double>(diff.a_bytes)
                   : static_cast<double>(bytes);
  }
  std::string Text() const {
    return percent ? fmt::format("{:g} %", *percent) : util::FormatBytes(bytes);
  }
};

// "64 MiB", "5%", "0.5 %".
util::Result<GrowthLimit> ParseLimit(const std::string& text) {
  GrowthLimit limit;
  if (!text.ends_with('%')) {
    const util::Result<uint64_t> size = util::ParseSize(text);
    if (!size.ok()) {
      return util::Status::Error(fmt::format(
          "--fail-above {}: use a size, as in 64MiB, or a share of A's peak, as in 5%", text));
    }
    limit.bytes = *size;
    return limit;
  }
  const std::string number = text.substr(0, text.find_last_not_of("% ") + 1);
  const double percent = util::WholeNumber<double>(number).value_or(-1);
  if (!std::isfinite(percent) || percent < 0)
    return util::Status::Error(
        fmt::format("--fail-above {}: '{}' is not a percentage", text, number));
  limit.percent = percent;
  return limit;
}

struct Opened {
  std::string file;
  std::unique_ptr<tables::Recording> recording;
};

// A recording, or all of a directory: those of a program's ranks.
util::Result<std::vector<Opened>> OpenSide(const std::string& path, bool native_names) {
  std::vector<std::string> files{path};
  std::error_code error;
  // An empty one is taken for a live recording where it is called as those are.
  const bool ranks = !IsLiveDirectory(path) || (std::filesystem::is_empty(path, error) &&
                                                std::filesystem::path(path).extension() != ".d");
  if (std::filesystem::is_directory(path, error) && ranks) {
    files.clear();
    for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
         it.increment(error)) {
      if (it->path().extension() == ".vram")
        files.push_back(it->path().string());
    }
    std::sort(files.begin(), files.end());
    if (files.empty())
      return util::Status::Error(path + ": contains no recording (*.vram)");
  }
  std::vector<Opened> opened;
  for (const std::string& file : files) {
    auto recording = OpenRecording(file, {.native_names = native_names});
    if (!recording.ok())
      return recording.status();
    opened.push_back({file, std::move(*recording)});
  }
  return opened;
}

std::vector<query::RankRecording> RanksOf(const std::vector<Opened>& side) {
  std::vector<query::RankRecording> ranks;
  for (const Opened& opened : side) {
    for (query::RankRecording& rank : query::RanksIn(opened.file, *opened.recording))
      ranks.push_back(std::move(rank));
  }
  return ranks;
}

// What is compared: a recording, or a rank of it.
struct Compared {
  std::string file;
  query::DiffSubject subject;
};

// Where ranks share a device, the history is of the one that is compared.
util::Result<std::vector<query::Timeline>> TimelinesOf(const query::DiffSubject& subject) {
  if (!subject.rank)
    return query::MakeTimelines(*subject.recording, kBuckets);
  return query::MakeTimelinesOf(*subject.recording, kBuckets,
                                [&](tables::ProcessId process) { return subject.Has(process); });
}

util::Status WritePage(const DiffArguments& arguments,
                       const query::Diff& diff,
                       const Compared& a,
                       const Compared& b) {
  VRAMSCOPE_RETURN_IF_ERROR(CheckNotInput(arguments.html, a.file));
  VRAMSCOPE_RETURN_IF_ERROR(CheckNotInput(arguments.html, b.file));
  const auto timelines_a = TimelinesOf(a.subject);
  if (!timelines_a.ok())
    return timelines_a.status();
  const auto timelines_b = TimelinesOf(b.subject);
  if (!timelines_b.ok())
    return timelines_b.status();
  const tables::Recording& recording_a = *a.subject.recording;
  const tables::Recording& recording_b = *b.subject.recording;
  return output::WriteDiffHtml(diff, {recording_a, *timelines_a}, {recording_b, *timelines_b},
                               arguments.html);
}

util::Status Print(const DiffArguments& arguments,
                   const query::Diff& diff,
                   const Compared& a,
                   const Compared& b) {
  if (!arguments.html.empty())
    VRAMSCOPE_RETURN_IF_ERROR(WritePage(arguments, diff, a, b));
  if (arguments.json)
    return PrintOut(output::DiffJson(diff));
  // The page has the figures.
  if (!arguments.html.empty())
    return {};
  output::DiffTextOptions text;
  text.style = output::DetectStyle(STDOUT_FILENO);
  text.top = arguments.top;
  return PrintOut(output::FormatDiff(diff, text));
}

// The exit status.
util::Result<int> ShowDiff(const DiffArguments& arguments) {
  std::optional<GrowthLimit> limit;
  if (!arguments.fail_above.empty()) {
    const util::Result<GrowthLimit> parsed = ParseLimit(arguments.fail_above);
    if (!parsed.ok())
      return parsed.status();
    limit = *parsed;
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(auto a, OpenSide(arguments.a, !arguments.no_native_names));
  VRAMSCOPE_ASSIGN_OR_RETURN(auto b, OpenSide(arguments.b, !arguments.no_native_names));
  const std::vector<query::RankRecording> ranks_a = RanksOf(a);
  const std::vector<query::RankRecording> ranks_b = RanksOf(b);
  size_t chosen_a = 0;
  size_t chosen_b = 0;
  // Two ranks of one recording have no median: what one of them has more would be lost.
  const bool sets = a.size() > 1 || b.size() > 1 ||
                    std::max(ranks_a.size(), ranks_b.size()) >= query::kFewestForOutlier;
  VRAMSCOPE_ASSIGN_OR_RETURN(query::Diff diff,
                             sets ? query::MakeRanksDiff(ranks_a, ranks_b, &chosen_a, &chosen_b)
                                  : query::MakeDiff(*a.front().recording, *b.front().recording));
  const auto compared = [&](const std::vector<Opened>& side, const query::RankRecording& rank) {
    return sets ? Compared{rank.file, rank.subject}
                : Compared{side.front().file, {side.front().recording.get()}};
  };
  const Compared compared_a = compared(a, ranks_a[chosen_a]);
  const Compared compared_b = compared(b, ranks_b[chosen_b]);
  diff.a = {compared_a.file, output::RecordedCommand(*compared_a.subject.recording)};
  diff.b = {compared_b.file, output::RecordedCommand(*compared_b.subject.recording)};
  VRAMSCOPE_RETURN_IF_ERROR(Print(arguments, diff, compared_a, compared_b));
  if (!limit || static_cast<double>(diff.delta_bytes()) <= limit->BytesOf(diff))
    return kExitOk;
  Note(fmt::format("the peak of B exceeds that of A by {}, more than the {} of --fail-above",
                   util::FormatBytes(static_cast<uint64_t>(diff.delta_bytes())), limit->Text()));
  return kExitLimitExceeded;
}

}  // namespace

void RegisterDiff(CLI::App& app, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("diff", "Compare two recordings and explain the difference");
  auto arguments = std::make_shared<DiffArguments>();
  command
      ->add_option(
          "A", arguments->a,
          "The recording to compare with, the one before: NAME.vram, NAME.vram.d, or a directory "
          "with the recordings of all ranks")
      ->required();
  command->add_option("B", arguments->b, "The recording to explain, the one after")->required();
  command
      ->add_option("--fail-above", arguments->fail_above,
                   "Exit with status 1 if B's peak is higher than A's by more: a size (64MiB) or a "
                   "share of A's peak (5%)")
      ->option_text("SIZE|PERCENT");
  command->add_option("--top", arguments->top, "Show N rows of changes; 0: all (default: 10)")
      ->check(CheckCount)
      ->option_text("N");
  command
      ->add_option("--html", arguments->html,
                   "Write an HTML page with both histories instead of text")
      ->option_text("FILE");
  command->add_flag("--json", arguments->json,
                    "Print JSON with exact bytes (schema vramscope.diff/1)");
  command->add_flag("--no-native-names", arguments->no_native_names,
                    "Skip C++ function names of an unfinished recording: faster");
  command->callback([arguments, exit_code] { *exit_code = ExitOf(ShowDiff(*arguments)); });
}

}  // namespace vramscope::cli
