// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"

namespace vramscope::output {

// What was recorded and how far it can be trusted, for people: one fact a line, each ended by a
// newline; on a terminal what has no room goes on below. `report` gives the losses, invariants and
// residuals of the whole run.
std::string FormatInfo(const query::Report& report,
                       const tables::Recording& recording,
                       const Style& style);

}  // namespace vramscope::output
