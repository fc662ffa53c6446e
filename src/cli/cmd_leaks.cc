// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/answers.h"
#include "output/terminal.h"
#include "pipeline/open_recording.h"
#include "util/file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

constexpr size_t kSuppressionsLimitBytes = size_t{1} << 20;

struct LeaksArguments {
  std::string file;
  std::string suppressions;
  std::string fail_above;
  size_t top = 10;
  bool json = false;
  bool csv = false;
};

// One pattern a line; `#` begins a comment. Blanks around a pattern do not count.
util::Result<std::vector<std::string>> ReadSuppressions(const std::string& path) {
  VRAMSCOPE_ASSIGN_OR_RETURN(std::string text, util::ReadFile(path, kSuppressionsLimitBytes));
  std::vector<std::string> patterns;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    line.erase(std::min(line.find('#'), line.size()));
    const size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string::npos)
      patterns.push_back(line.substr(first, line.find_last_not_of(" \t\r") + 1 - first));
    begin = end + 1;
  }
  return patterns;
}

util::Status Print(const LeaksArguments& arguments,
                   const query::Leaks& leaks,
                   const tables::Recording& recording) {
  if (arguments.json)
    return PrintOut(output::LeaksJson(leaks, recording));
  if (arguments.csv)
    return PrintOut(output::LeaksCsv(leaks, recording));
  output::LeaksTextOptions options;
  options.style = output::DetectStyle(STDOUT_FILENO);
  options.top = arguments.top;
  return PrintOut(output::FormatLeaks(leaks, recording, options));
}

// The exit status.
util::Result<int> ShowLeaks(const LeaksArguments& arguments) {
  query::LeakOptions options;
  options.limit = std::numeric_limits<size_t>::max();
  std::optional<uint64_t> limit;
  if (!arguments.fail_above.empty()) {
    util::Result<uint64_t> size = util::ParseSize(arguments.fail_above);
    if (!size.ok())
      return util::Status::Error("--fail-above: " + size.status().message());
    limit = *size;
  }
  if (!arguments.suppressions.empty()) {
    util::Result<std::vector<std::string>> patterns = ReadSuppressions(arguments.suppressions);
    if (!patterns.ok())
      return patterns.status();
    options.suppressions = std::move(*patterns);
  }
  util::Result<std::unique_ptr<tables::Recording>> recording = OpenRecording(arguments.file);
  if (!recording.ok())
    return recording.status();
  util::Result<query::Leaks> leaks = query::MakeLeaks(**recording, options);
  if (!leaks.ok())
    return util::Status::Error(arguments.file + ": " + leaks.status().message());
  VRAMSCOPE_RETURN_IF_ERROR(Print(arguments, *leaks, **recording));
  if (!limit)
    return kExitOk;
  if (leaks->iterations == 0) {
    return util::Status::Error(arguments.file +
                               ": --fail-above needs iterations, and this recording has none");
  }
  if (leaks->too_few) {
    return util::Status::Error(
        fmt::format("{}: --fail-above needs {} iterations, and this recording "
                    "has {}",
                    arguments.file, query::kFewestIterations, leaks->iterations));
  }
  const double growth = leaks->bytes_per_iteration;
  if (growth <= static_cast<double>(*limit))
    return kExitOk;
  Note(fmt::format("memory grows by {} an iteration, more than the {} of --fail-above",
                   util::FormatBytes(static_cast<uint64_t>(growth)), util::FormatBytes(*limit)));
  return kExitLimitExceeded;
}

}  // namespace

void RegisterLeaks(CLI::App& app, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("leaks", "Show what grows from iteration to iteration");
  auto arguments = std::make_shared<LeaksArguments>();
  command->add_option("FILE", arguments->file, kRecordingHelp)->required();
  command
      ->add_option(
          "--suppressions", arguments->suppressions,
          "Leave out what FILE lists. Each line is a part of a call site, layer, name or stack "
          "frame; # begins a comment")
      ->option_text("FILE");
  command
      ->add_option("--fail-above", arguments->fail_above,
                   "Exit with status 1 if memory grows by more than SIZE in each iteration")
      ->option_text("SIZE");
  command->add_option("--top", arguments->top, "Show N entries of each list; 0: all (default: 10)")
      ->check(CheckCount)
      ->option_text("N");
  CLI::Option* const json = command->add_flag(
      "--json", arguments->json, "Print JSON with exact bytes (schema vramscope.leaks/1)");
  command->add_flag("--csv", arguments->csv, "Print both lists as CSV with exact bytes")
      ->excludes(json);
  command->callback([arguments, exit_code] { *exit_code = ExitOf(ShowLeaks(*arguments)); });
}

}  // namespace vramscope::cli
