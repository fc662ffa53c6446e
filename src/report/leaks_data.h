// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/query/report.h"
#include "trace/trace.h"

namespace vramscope::report {

inline constexpr char kLeaksSchema[] = "vramscope.leaks/1";

// One object of the schema vramscope.leaks/1 (docs/REPORT_SCHEMA.md), ended by a newline.
std::string LeaksJson(const engine::Leaks& leaks, const trace::Trace& trace);

// Both lists as one table, exact bytes.
std::string LeaksCsv(const engine::Leaks& leaks, const trace::Trace& trace);

}  // namespace vramscope::report
