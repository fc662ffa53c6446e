// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/dimensions/report.h"

namespace vramscope::output {

// Of a run with --overflow: what the peak would have been, what of it was in the host's memory and
// which card would hold it; or that nothing was, and why.
std::vector<std::string> OverflowLines(const query::Report& report,
                                       const tables::Recording& recording,
                                       const Style& style);

// Why overflow served less than it was asked for, "" where it did not.
std::string OverflowTrouble(const tables::Recording& recording);

}  // namespace vramscope::output
