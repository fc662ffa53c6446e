// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"

// Texts of a report for people: in whole, at the end of a run, and what was recorded.
namespace vramscope::output {

inline constexpr size_t kScreenRows = 50;

struct TextOptions {
  Style style;
  size_t rows = kScreenRows;         // that the report fits on; 0: no limit, as in a pipe
  std::vector<std::string> closing;  // after the tables: where the file is, what failed
  std::vector<std::string> next;     // the last lines: what to type next
};

// The report for people: the answer in a sentence, how the program ended, the categories and the
// ledger of each device, the layers, lines and stacks that hold most, the largest sums of
// allocations, how far the report can be trusted, and the answer again. Without known categories it
// has the ledger only, with `query.by` the groups only. Rows of --top are all shown. Each line ends
// with a newline.
std::string FormatText(const query::Report& report,
                       const tables::Recording& recording,
                       const query::ReportQuery& query,
                       const TextOptions& options);

struct SummaryOptions {
  int columns = 80;
  bool colour = false;
  bool utf8 = LocaleIsUtf8();
  std::string trace_path;                  // shown as the way to more: "vramscope report PATH"
  std::vector<std::string> out_of_memory;  // lines on refused requests
  std::string ranks;                       // RanksLine(); empty: none
  std::string html_path;                   // where the page was written; empty: nowhere
};

struct NextOptions {
  std::string path;       // of the recording
  bool has_page = false;  // it was written
  bool utf8 = LocaleIsUtf8();
};

// What to type next, from the report: a line a command, none if nothing was allocated.
std::vector<std::string> NextLines(const query::Report& report,
                                   const tables::Recording& recording,
                                   const query::ReportQuery& query,
                                   const NextOptions& options);

// The block that `vramscope run` prints after the program: the peak and its owners, top stacks and
// lines, residual, losses. It fits on one screen. `report` is of the peak.
std::string FormatRunSummary(const query::Report& report,
                             const tables::Recording& recording,
                             const SummaryOptions& options);

// Facts about the recording, and how far it can be trusted: one fact a line, wrapped on a terminal.
// `report` has the losses, invariants and residuals of the whole run.
std::string FormatInfo(const query::Report& report,
                       const tables::Recording& recording,
                       const Style& style);

}  // namespace vramscope::output
