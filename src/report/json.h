// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/query/report.h"
#include "util/json_writer.h"

namespace vramscope::report {

inline constexpr char kReportSchema[] = "vramscope.report/1";

// One object of the schema vramscope.report/1 (docs/REPORT_SCHEMA.md).
void WriteReportJson(const engine::Report& report, util::JsonWriter& json);

// The same as text: indented, one object a row, ended by a newline.
std::string ReportJson(const engine::Report& report);

}  // namespace vramscope::report
