// SPDX-License-Identifier: Apache-2.0
#include "report/away_lines.h"

#include <fmt/format.h>

#include "util/size_text.h"

namespace vramscope::report {
namespace {

constexpr size_t kMaxLines = 8;

}  // namespace

std::vector<std::string> AwayLines(const engine::Analysis& analysis) {
  const trace::Trace& trace = analysis.trace();
  const std::vector<engine::TimeAway> times = analysis.TimesAway();
  std::vector<std::string> lines;
  for (const engine::TimeAway& time : times) {
    if (lines.size() == kMaxLines) {
      lines.push_back(fmt::format("({} more times)", times.size() - kMaxLines));
      break;
    }
    const int64_t start_ns = trace.session().start_ns;
    std::string line = fmt::format("pid {} gave its device memory back ",
                                   trace.processes()[time.process.value].pid);
    line += time.to_ns == INT64_MAX
                ? fmt::format("at {}", util::FormatDuration(time.from_ns - start_ns))
                : fmt::format("from {} to {}", util::FormatDuration(time.from_ns - start_ns),
                              util::FormatDuration(time.to_ns - start_ns));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace vramscope::report
