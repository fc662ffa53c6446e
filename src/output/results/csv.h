// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "query/dimensions/report.h"

namespace vramscope::output {

struct NamedReport {
  std::string file;
  query::Report report;
};

// What lines begin with where reports are of several files, or of several instants.
struct CsvColumns {
  bool file = false;
  bool at_ns = false;  // the instant of the row's device
};

// The rows of one or several reports as one table (RFC 4180, with a header line): those columns,
// device, index, pid, one column a level (level1, level2, ...) or a --by dimension, bytes, count.
// Levels that a row does not have, and the pid of no recorded process, are empty.
std::string ReportCsv(const std::vector<NamedReport>& reports,
                      const std::vector<query::Dimension>& by,
                      CsvColumns first = {});

// A field as RFC 4180 wants it, quoted only where needed. Names in a recording are somebody else's
// text, and spreadsheets take a cell that begins with one of = + - @ or a control character for a
// formula: such a field begins with an apostrophe, which they do not show.
std::string CsvField(std::string_view text);

}  // namespace vramscope::output
