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
  const std::string word = clean(ShellWord(options.trace_path));
  const char* const next = report.top_modules.empty() ? "line" : "module,category";
  // Where nothing was allocated there is nothing to look at.
  const bool any = std::any_of(report.devices.begin(), report.devices.end(),
                               [](const auto& device) { return device.ledger_bytes > 0; });
  if (any && report.sampled)
    text.closing.push_back(
        fmt::format("Next:  vramscope plot {} --kind timeline -o timeline.svg", word));
  else if (any)
    text.closing.push_back(fmt::format("Next:  vramscope report {} --by {}", word, next));
  if (any && PeaksInTheLastIteration(report, recording))
    text.closing.push_back(fmt::format("       vramscope leaks {}", word));
  if (any && options.html_path.empty())
    text.closing.push_back(fmt::format("       vramscope open {}", word));
  return FormatText(report, recording, {}, text);
}

}  // namespace vramscope::output
