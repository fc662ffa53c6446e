// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "query/dimensions/report.h"
#include "util/json_writer.h"

namespace vramscope::output {

inline constexpr char kReportSchema[] = "vramscope.report/1";

// One object of the schema vramscope.report/1 (docs/REPORT_SCHEMA.md).
void WriteReportJson(const query::Report& report,
                     const tables::Recording& recording,
                     util::JsonWriter& json);

// The same as text: indented, one line a row, ended by a newline.
std::string ReportJson(const query::Report& report, const tables::Recording& recording);

// Of objects as text: one as itself, several as an array in the order given.
std::string JsonOfFiles(const std::vector<std::string>& objects);

}  // namespace vramscope::output
