// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "engine/query/report.h"
#include "report/terminal.h"
#include "trace/trace.h"

namespace vramscope::report {

struct LeaksTextOptions {
  Style style;
  size_t top = 10;  // entries of each list; 0: all
};

// What grows from iteration to iteration, and what nobody freed, for people.
std::string FormatLeaks(const engine::Leaks& leaks,
                        const trace::Trace& trace,
                        const LeaksTextOptions& options);

}  // namespace vramscope::report
