// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "output/answers.h"
#include "output/names.h"
#include "output/text/text_table.h"
#include "tables/row_of.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

using util::FormatBytes;

constexpr size_t kMostPhaseNames = 4;

std::string LeftText(const query::EnginePhase& phase) {
  std::string text;
  int64_t rest = phase.left_bytes;
  for (size_t i = 0; i < std::min(kMostPhaseNames, phase.left.size()); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", phase.left[i].category,
                        util::FormatSignedBytes(phase.left[i].bytes));
    rest -= phase.left[i].bytes;
  }
  if (rest != 0)
    text += fmt::format(", others {}", util::FormatSignedBytes(rest));
  return text;
}

// A table for each process and device: of phases, which are the whole run together, or of graphs.
void AddTables(std::span<const query::EnginePhase> all,
               bool is_whole,
               const tables::Recording& recording,
               TextLines* text) {
  const char* const kind = is_whole ? "phase" : "CUDA graph";
  for (size_t begin = 0; begin < all.size();) {
    const query::EnginePhase& first = all[begin];
    size_t end = begin;
    while (end < all.size() && all[end].process == first.process && all[end].device == first.device)
      ++end;
    if (text->size() != 0)
      text->Add("");
    const tables::ProcessRow& process = RowOf(recording.tables().processes, first.process);
    text->AddCut(fmt::format("{} of process {} ({})", DeviceMark(recording, first.device),
                             process.pid, text->Clean(recording.string(process.command))));
    TextTable table(text, {{.title = kind, .width = 10, .most = 28, .fit = Fit::kCutEnd, .gap = 2},
                           {.title = "time", .width = 8, .gap = 2},
                           {.title = "peak", .width = 10, .gap = 2},
                           {.title = "left", .width = 10, .gap = 2},
                           {.title = "by", .fit = Fit::kWrap, .gap = 2}});
    table.AddTitles();
    int64_t total = 0;
    for (const query::EnginePhase& phase : all.subspan(begin, end - begin)) {
      total += phase.left_bytes;
      table.AddRow({{text->Clean(phase.name)},
                    {phase.duration_ns == 0 ? "" : util::FormatDuration(phase.duration_ns)},
                    {FormatBytes(phase.peak_bytes)},
                    {util::FormatSignedBytes(phase.left_bytes)},
                    {LeftText(phase)}});
    }
    table.AddRest(
        {{is_whole ? "at the end" : "all"}, {}, {}, {util::FormatSignedBytes(total)}, {}});
    begin = end;
  }
}

}  // namespace

std::string FormatPhases(const query::EnginePhases& phases,
                         const tables::Recording& recording,
                         const Style& style) {
  TextLines text(style);
  AddTables(phases.phases, true, recording, &text);
  AddTables(phases.graphs, false, recording, &text);
  const std::vector<std::string> notes = PhaseNotes(phases, recording);
  if (!notes.empty())
    text.Add("");
  for (const std::string& note : notes)
    text.Add(note);
  return text.Take();
}

std::vector<std::string> PhaseNotes(const query::EnginePhases& phases,
                                    const tables::Recording& recording) {
  std::vector<std::string> notes;
  for (const query::EngineBudget& budget : phases.budgets) {
    const bool is_over = budget.peak_bytes > budget.budget_bytes;
    const uint64_t apart =
        is_over ? budget.peak_bytes - budget.budget_bytes : budget.budget_bytes - budget.peak_bytes;
    notes.push_back(fmt::format(
        "{} {:g} allows {} of {}; at most {} were used, {} {}", budget.option, budget.share,
        FormatBytes(budget.budget_bytes), DeviceMark(recording, budget.device),
        FormatBytes(budget.peak_bytes), FormatBytes(apart), is_over ? "more" : "less"));
  }
  // An engine sizes its cache by what is free. What comes later has to fit beside it.
  for (const query::EnginePhase& phase : phases.phases) {
    const bool has_cache = std::any_of(
        phases.phases.begin(), phases.phases.end(), [&](const query::EnginePhase& other) {
          return other.process == phase.process && other.name == "kv cache";
        });
    if (has_cache && phase.name == "capture" && phase.left_bytes > 0 &&
        RowOf(recording.tables().devices, phase.device).kind == tables::DeviceKind::kGpu) {
      notes.push_back(fmt::format("capture took {} of {} after the KV cache was sized",
                                  FormatBytes(static_cast<uint64_t>(phase.left_bytes)),
                                  DeviceMark(recording, phase.device)));
    }
  }
  return notes;
}

}  // namespace vramscope::output
