// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/dimensions/report.h"

// The block that `vramscope run` prints when the program has ended: peak, who had it, top stacks
// and lines, residual, losses. It fits on one screen.
namespace vramscope::output {

struct SummaryOptions {
  int columns = 80;
  bool colour = false;
  bool utf8 = LocaleIsUtf8();
  std::string trace_path;                  // shown as the way to more: "vramscope report PATH"
  std::vector<std::string> out_of_memory;  // lines on refused requests
  std::string ranks;                       // RanksLine(); empty: none
  std::string html_path;                   // where the page was written; empty: nowhere
};

// Of the report at the peak. Several lines, each ended by a newline.
std::string FormatRunSummary(const query::Report& report,
                             const tables::Recording& recording,
                             const SummaryOptions& options);

}  // namespace vramscope::output
