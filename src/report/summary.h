// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/query/report.h"
#include "report/terminal.h"
#include "util/status.h"

// The block that `vramscope run` prints when the program has ended: peak, who had it, top stacks
// and lines, residual, losses. It fits on one screen.
namespace vramscope::report {

struct SummaryOptions {
  int columns = 80;
  bool colour = false;
  bool utf8 = LocaleIsUtf8();
  std::string trace_path;  // shown as the way to more: "vramscope report PATH"
  std::string html_path;   // where the page was written; empty: nowhere
};

// Several lines, each ended by a newline.
util::Result<std::string> FormatRunSummary(engine::Analysis& analysis,
                                           const SummaryOptions& options);

}  // namespace vramscope::report
