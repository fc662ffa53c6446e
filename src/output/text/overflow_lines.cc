// SPDX-License-Identifier: Apache-2.0
#include "output/text/overflow_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "output/devices.h"
#include "tables/imported.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

using util::FormatBytes;

constexpr size_t kMostNamed = 4;

std::string Names(const query::BytesByName& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i)
    text +=
        fmt::format("{}{} {}", i == 0 ? "" : ", ", names[i].first, FormatBytes(names[i].second));
  return text;
}

std::string WouldFit(const query::Overflow& overflow) {
  std::string text = overflow.card_gb != 0 ? fmt::format("  fits a card of {} GB", overflow.card_gb)
                                           : "  fits no single card";
  if (!overflow.batch_percent)
    return text;
  return text + (*overflow.batch_percent == 0
                     ? "; this one does not hold what no batch changes"
                     : fmt::format("; this one, about {} % of the batch", *overflow.batch_percent));
}

}  // namespace

std::string OverflowTrouble(const tables::Recording& recording) {
  const std::string_view unavailable = tables::NoteOf(recording, "overflow.unavailable");
  if (!unavailable.empty())
    return fmt::format("--overflow could not serve a request: {}: it got the driver's own answer",
                       unavailable);
  const std::string_view limit = tables::NoteOf(recording, "overflow.limit");
  if (!limit.empty())
    return fmt::format("--overflow served no more: {}", limit);
  return "";
}

std::vector<std::string> OverflowLines(const query::Report& report,
                                       const tables::Recording& recording,
                                       const Style& style) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& line) {
    lines.push_back(CutEnd(Printable(line, style.utf8), static_cast<size_t>(style.columns), style));
  };
  for (const query::Overflow& overflow : report.overflow) {
    add(fmt::format("Overflow on {}: the peak would have been {} in use, {} held",
                    DeviceMark(report, overflow.device), FormatBytes(overflow.used_bytes),
                    FormatBytes(overflow.held_bytes)));
    add("  by category: " + Names(overflow.all_categories));
    add(fmt::format("  {} of it in host memory, at {} s: {}", FormatBytes(overflow.host_bytes),
                    ExactSeconds(overflow.time_ns - recording.tables().session.begin_ns),
                    Names(overflow.categories)));
    if (!overflow.layers.empty())
      add("    layers: " + Names(overflow.layers));
    if (!overflow.lines.empty())
      add("    lines:  " + Names(overflow.lines));
    add(WouldFit(overflow));
  }
  if (const std::string trouble = OverflowTrouble(recording); !trouble.empty())
    add(trouble);
  return lines;
}

}  // namespace vramscope::output
