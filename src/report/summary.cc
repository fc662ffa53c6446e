// SPDX-License-Identifier: Apache-2.0
#include "report/summary.h"

#include <fmt/format.h>

#include <string_view>

#include "report/away_lines.h"
#include "report/text.h"
#include "report/trust_lines.h"

namespace vramscope::report {
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

}  // namespace

util::Result<std::string> FormatRunSummary(engine::Analysis& analysis,
                                           const SummaryOptions& options) {
  const engine::ReportQuery query;
  util::Result<engine::Report> report = analysis.MakeReport(query);
  if (!report.ok())
    return report.status();

  TextOptions text;
  text.style = {.columns = options.columns, .colour = options.colour, .utf8 = options.utf8};
  const auto clean = [&](const std::string& path) { return Printable(path, options.utf8); };
  text.away = AwayLines(analysis);
  text.closing.push_back(TraceLine(analysis.trace(), options.trace_path, text.style));
  if (!options.html_path.empty())
    text.closing.push_back("Page:  " + clean(options.html_path));
  const std::string word = clean(ShellWord(options.trace_path));
  const char* const next = report->top_modules.empty() ? "line" : "module,category";
  text.closing.push_back(fmt::format("Next:  vramscope report {} --by {}", word, next));
  if (options.html_path.empty()) {
    text.closing.push_back(fmt::format("       vramscope report {} --html report.html", word));
  }
  return FormatText(*report, analysis.trace(), query, text);
}

}  // namespace vramscope::report
