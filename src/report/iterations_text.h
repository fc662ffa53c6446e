// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "engine/query/report.h"
#include "report/terminal.h"
#include "trace/trace.h"

namespace vramscope::report {

struct IterationsTextOptions {
  Style style;
  size_t rows = 10;        // of a long run: so many from its start and its end together; 0: all
  size_t parameters = 10;  // layers in the table of parameters; 0: all
};

// The iterations for people: one row each, by process and device, then what the parameters of the
// last whole iteration took, by layer. The iteration with the highest peak is marked by a star.
std::string FormatIterations(const engine::Iterations& iterations,
                             const trace::Trace& trace,
                             const IterationsTextOptions& options);

}  // namespace vramscope::report
