// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "output/text/text.h"

namespace vramscope::output {
namespace {

// A path that a shell takes as one word: what people copy from here must work.
std::string ShellWord(const std::string& path) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%";
  if (!path.empty() && path.find_first_not_of(kPlain) == std::string::npos)
    return path;
  std::string quoted = "'";
  for (const char c : path)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Whether enough iterations end with the peak: something may grow.
bool PeaksInTheLastIteration(const query::Report& report, const tables::Recording& recording) {
  int64_t last = -1;
  for (const tables::IterationRow& row : recording.tables().iterations)
    last = std::max(last, row.number);
  return last + 1 >= query::kFewestIterations &&
         std::any_of(report.devices.begin(), report.devices.end(),
                     [&](const auto& device) { return device.at_iteration == last; });
}

}  // namespace

std::vector<std::string> NextLines(const query::Report& report,
                                   const tables::Recording& recording,
                                   const query::ReportQuery& query,
                                   const NextOptions& options) {
  // Where nothing was allocated there is nothing to look at.
  const bool any = std::any_of(report.devices.begin(), report.devices.end(),
                               [](const auto& device) { return device.ledger_bytes > 0; });
  if (!any)
    return {};
  std::vector<std::string> commands;
  const std::string word = Printable(ShellWord(options.path), options.utf8);
  if (report.sampled)
    commands.push_back(fmt::format("plot {} --kind timeline -o timeline.svg", word));
  else if (query.by.empty())
    commands.push_back(fmt::format("report {} --by {}", word,
                                   report.top_modules.empty() ? "line" : "module,category"));
  if (PeaksInTheLastIteration(report, recording))
    commands.push_back("leaks " + word);
  if (!options.has_page)
    commands.push_back("open " + word);
  std::vector<std::string> lines;
  for (const std::string& command : commands)
    lines.push_back((lines.empty() ? "Next:  vramscope " : "       vramscope ") + command);
  return lines;
}

std::string FormatRunSummary(const query::Report& report,
                             const tables::Recording& recording,
                             const SummaryOptions& options) {
  TextOptions text;
  text.style = {.columns = options.columns, .colour = options.colour, .utf8 = options.utf8};
  const auto clean = [&](const std::string& path) { return Printable(path, options.utf8); };
  text.closing.push_back(TraceLine(recording, options.trace_path, text.style));
  for (const std::string& line : options.out_of_memory)
    text.closing.push_back(clean(line));
  if (!options.ranks.empty())
    text.closing.push_back(options.ranks);
  if (!options.html_path.empty())
    text.closing.push_back("Page:  " + clean(options.html_path));
  text.next = NextLines(report, recording, {},
                        {options.trace_path, !options.html_path.empty(), options.utf8});
  return FormatText(report, recording, {}, text);
}

}  // namespace vramscope::output
