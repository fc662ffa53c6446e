// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "output/answers.h"
#include "output/names.h"
#include "output/text/text_table.h"
#include "query/results.h"
#include "tables/row_of.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

class WhatIfText : public TextLines {
 public:
  WhatIfText(const query::WhatIf& what, const tables::Recording& recording, const Style& style)
      : TextLines(style), what_(what), recording_(recording) {}

  std::string Format() {
    for (const query::WhatIfGpu& gpu : what_.gpus) {
      if (size() > 0)
        Add("");
      if (gpu.IsReproduced())
        AddGpu(gpu);
      else
        AddDifference(gpu);
    }
    return Take();
  }

 private:
  void AddGpu(const query::WhatIfGpu& gpu);
  void AddRow(const query::WhatIfRow& row, TextTable* table);
  void AddFailures(const query::WhatIfGpu& gpu);
  void AddDifference(const query::WhatIfGpu& gpu);
  void AddInferred(const query::WhatIfGpu& gpu);
  void AddSentence(const std::string& text) { Add(Wrapped(text, 0, 2, style())); }
  std::string SettingsOf(const query::WhatIfRow& row) const {
    return row.settings.empty() ? "as recorded" : Clean(row.settings);
  }
  std::string NameOf(const query::WhatIfGpu& gpu) const {
    const uint32_t pid = tables::RowOf(recording_.tables().processes, gpu.process).pid;
    return fmt::format("{}, pid {}", DeviceMark(recording_, gpu.device), pid);
  }
  std::string SecondsOf(int64_t time_ns) const {
    return ExactSeconds(time_ns - recording_.tables().session.begin_ns);
  }

  const query::WhatIf& what_;
  const tables::Recording& recording_;
};

std::string Counted(uint64_t count, const char* one) {
  return util::FormatCount(count) + " " + one + (count == 1 ? "" : "s");
}

void WhatIfText::AddDifference(const query::WhatIfGpu& gpu) {
  AddSentence(fmt::format(
      "{}: the model of PyTorch's allocator differs from the recording after {} of {}, by up to "
      "{}, first at {} s: no answer about other settings.",
      NameOf(gpu), util::FormatCount(gpu.different_events),
      Counted(gpu.segment_events, "segment event"), util::FormatBytes(gpu.largest_difference_bytes),
      SecondsOf(gpu.first_different_ns)));
}

void WhatIfText::AddRow(const query::WhatIfRow& row, TextTable* table) {
  const bool fails = row.fails_ns.has_value();
  TextCells cells = {{fails ? "-" : util::FormatBytes(row.reserved_peak_bytes)},
                     {fails ? "-" : util::FormatBytes(row.UnusedBytes())},
                     {fails ? "-" : util::FormatCount(row.driver_calls)}};
  if (what_.card_bytes) {
    cells.push_back(fails ? TextCell{"fails", Ink::kError}
                          : TextCell{util::FormatBytes(static_cast<uint64_t>(*row.spare_bytes))});
  }
  cells.push_back({SettingsOf(row)});
  table->AddRow(cells);
}

// Settings that fail at the same request have one sentence.
void WhatIfText::AddFailures(const query::WhatIfGpu& gpu) {
  std::map<int64_t, std::vector<const query::WhatIfRow*>> by_time;
  for (const query::WhatIfRow& row : gpu.settings) {
    if (row.fails_ns)
      by_time[*row.fails_ns].push_back(&row);
  }
  if (!by_time.empty())
    Add("");
  for (const auto& [time_ns, rows] : by_time) {
    const query::WhatIfRow& row = *rows.front();
    std::string text = fmt::format("Fails at {} s", SecondsOf(time_ns));
    if (row.fails_iteration)
      text += fmt::format(", in iteration {}", *row.fails_iteration);
    if (!row.fails_place.empty())
      text += ", at " + Clean(row.fails_place);
    text += fmt::format(", asking for {}: ", util::FormatBytes(*row.fails_bytes));
    if (rows.size() == gpu.settings.size() && rows.size() > 1) {
      text += "all of these";
    } else {
      std::vector<std::string> names;
      for (const query::WhatIfRow* const each : rows)
        names.push_back(SettingsOf(*each));
      text += Joined(names, "; ");
    }
    AddSentence(text);
  }
}

void WhatIfText::AddGpu(const query::WhatIfGpu& gpu) {
  AddSentence(fmt::format(
      "{}: {}. The model of PyTorch's allocator reserves what was recorded "
      "after each of {}.",
      NameOf(gpu), Counted(gpu.requests, "request"), Counted(gpu.segment_events, "segment event")));
  if (what_.card_bytes) {
    AddSentence(fmt::format(
        "A card of {} leaves {} to it: the process has up to {} beside.",
        util::FormatBytes(*what_.card_bytes),
        util::FormatBytes(*what_.card_bytes - std::min(*what_.card_bytes, gpu.other_bytes)),
        util::FormatBytes(gpu.other_bytes)));
  }
  Add("");
  std::vector<TextColumn> columns = {{.title = "reserved", .width = kBytesColumns},
                                     {.title = "unused", .width = kBytesColumns},
                                     {.title = "calls", .width = 9}};
  if (what_.card_bytes)
    columns.push_back({.title = "spare", .width = kBytesColumns});
  columns.push_back({.title = "Settings, at their peaks",
                     .fit = Fit::kCutEnd,
                     .gap = 2,
                     .title_ink = Ink::kBold});
  {
    TextTable table(this, columns);
    table.AddTitles();
    for (const query::WhatIfRow& row : gpu.settings)
      AddRow(row, &table);
  }
  AddFailures(gpu);
  AddInferred(gpu);
}

// What is not in the recording.
void WhatIfText::AddInferred(const query::WhatIfGpu& gpu) {
  Add("");
  if (what_.pytorch.empty())
    AddSentence("Assumed: the rules of PyTorch 2.14, since the version was not recorded.");
  if (gpu.settings_inferred)
    AddSentence("Inferred: the recording's setting " + Clean(gpu.recorded_settings) + ".");
  if (gpu.settings_inferred || gpu.recorded_settings.empty())
    AddSentence("Assumed: default settings otherwise, which a match does not prove.");
  if (gpu.inferred_streams > 1) {
    AddSentence(
        fmt::format("Inferred: {} streams or private pools, so that segments match: the "
                    "answers are estimates.",
                    gpu.inferred_streams));
  }
  if (gpu.hidden_blocks > 0) {
    AddSentence(fmt::format("Inferred: the sizes of {}, whose requests may be up to 1 MiB smaller.",
                            Counted(gpu.hidden_blocks, "large block")));
  }
  if (gpu.moved_blocks > 0) {
    AddSentence(fmt::format("{} at another address than recorded, in segments of the same size.",
                            Counted(gpu.moved_blocks, "block")));
  }
}

}  // namespace

std::string FormatWhatIf(const query::WhatIf& what,
                         const tables::Recording& recording,
                         const Style& style) {
  return WhatIfText(what, recording, style).Format();
}

}  // namespace vramscope::output
