// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/query/report.h"
#include "report/terminal.h"
#include "trace/trace.h"

namespace vramscope::report {

struct TextOptions {
  Style style;
  size_t rows = 50;                  // of the screen that the report tries to fit on
  std::vector<std::string> away;     // when processes had given their memory back, AwayLines()
  std::vector<std::string> closing;  // last lines: where the file is, what to type next
};

// The report for people: a headline, the categories and the ledger of each device, the layers,
// lines and stacks that hold most, what was allocated most, and how far all this can be trusted.
// Where nobody said what memory is for, the ledger alone. With `query.by` only the groups; rows
// that --top asked for are all shown. Several lines, each ended by a newline.
std::string FormatText(const engine::Report& report,
                       const trace::Trace& trace,
                       const engine::ReportQuery& query,
                       const TextOptions& options);

// "python train.py (pid 4711, rank 0)": enough of a command to know it by.
std::string ProcessLabel(const std::string& command, uint32_t pid, std::optional<int32_t> rank);

}  // namespace vramscope::report
