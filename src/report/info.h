// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/query/report.h"
#include "report/terminal.h"
#include "trace/trace.h"

namespace vramscope::report {

// What was recorded and how far it can be trusted, for people: one fact a line, each ended by a
// newline. `report` gives the losses, invariants and residuals of the whole run.
std::string FormatInfo(const engine::Report& report, const trace::Trace& trace, const Style& style);

}  // namespace vramscope::report
