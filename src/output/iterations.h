// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "output/terminal.h"
#include "query/dimensions/report.h"

namespace vramscope::output {

inline constexpr char kIterationsSchema[] = "vramscope.iterations/1";

// One object of the schema vramscope.iterations/1 (docs/REPORT_SCHEMA.md), ended by a newline.
std::string IterationsJson(const query::Iterations& iterations, const tables::Recording& recording);

// The iterations as a table, exact bytes: one column a category for its peak and one for its end.
std::string IterationsCsv(const query::Iterations& iterations, const tables::Recording& recording);

struct IterationsTextOptions {
  Style style;
  size_t rows = 10;        // of a long run: so many from its start and its end together; 0: all
  size_t parameters = 10;  // layers in the table of parameters; 0: all
};

// The iterations for people: one row each, by process and device, then what the parameters of the
// last whole iteration took, by layer. The iteration with the highest peak is marked by a star.
std::string FormatIterations(const query::Iterations& iterations,
                             const tables::Recording& recording,
                             const IterationsTextOptions& options);

}  // namespace vramscope::output
