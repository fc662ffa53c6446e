// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/query/report.h"
#include "report/terminal.h"
#include "trace/trace.h"

namespace vramscope::report {

// What was recorded and how far it can be trusted, for people: one fact a line, each ended by a
// newline. `report` gives the losses, invariants and residuals of the whole run.
// `away`: when processes had given their memory back, AwayLines().
std::string FormatInfo(const engine::Report& report,
                       const trace::Trace& trace,
                       const Style& style,
                       const std::vector<std::string>& away = {});

}  // namespace vramscope::report
