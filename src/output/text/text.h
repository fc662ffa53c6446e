// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/dimensions/report.h"

namespace vramscope::output {

inline constexpr size_t kScreenRows = 50;

struct TextOptions {
  Style style;
  size_t rows = kScreenRows;         // that the report fits on; 0: no limit, as in a pipe
  std::vector<std::string> closing;  // last lines: where the file is, what to type next
};

// The report for people: a headline, the categories and the ledger of each device, the layers,
// lines and stacks that hold most, what was allocated most, and how far all this can be trusted.
// Where nobody said what memory is for, the ledger alone. With `query.by` only the groups; rows
// that --top asked for are all shown. Several lines, each ended by a newline.
std::string FormatText(const query::Report& report,
                       const tables::Recording& recording,
                       const query::ReportQuery& query,
                       const TextOptions& options);

}  // namespace vramscope::output
