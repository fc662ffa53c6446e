// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/query/report.h"
#include "report/named_report.h"
#include "util/json_writer.h"

namespace vramscope::report {

inline constexpr char kReportSchema[] = "vramscope.report/1";

// One object of the schema vramscope.report/1 (docs/REPORT_SCHEMA.md).
void WriteReportJson(const engine::Report& report, util::JsonWriter& json);

// The same as text: indented, one line a row, ended by a newline.
std::string ReportJson(const engine::Report& report);
// One report as itself, several as an array in the order given.
std::string ReportsJson(const std::vector<NamedReport>& reports);

}  // namespace vramscope::report
