// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/query/report.h"
#include "trace/trace.h"

namespace vramscope::report {

inline constexpr char kIterationsSchema[] = "vramscope.iterations/1";

// One object of the schema vramscope.iterations/1 (docs/REPORT_SCHEMA.md), ended by a newline.
std::string IterationsJson(const engine::Iterations& iterations, const trace::Trace& trace);

// The iterations as a table, exact bytes: one column a category for its peak and one for its end.
std::string IterationsCsv(const engine::Iterations& iterations, const trace::Trace& trace);

}  // namespace vramscope::report
