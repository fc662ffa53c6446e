// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "output/terminal.h"
#include "query/dimensions/report.h"

namespace vramscope::output {

inline constexpr char kLeaksSchema[] = "vramscope.leaks/1";

// One object of the schema vramscope.leaks/1 (docs/REPORT_SCHEMA.md), ended by a newline.
std::string LeaksJson(const query::Leaks& leaks, const tables::Recording& recording);

// Both lists as one table, exact bytes.
std::string LeaksCsv(const query::Leaks& leaks, const tables::Recording& recording);

// One sentence for people: what the ends of the iterations say about growth.
struct LeaksVerdict {
  std::string text;  // without a full stop
  bool good = false;
};
LeaksVerdict VerdictOf(const query::Leaks& leaks);

// "Models that have not run since others took their place: 9 (Linear#[1-9] x9), ..."; empty where
// there are none.
std::string UnusedModelsText(const query::Leaks& leaks);

// "parameter 474.8 MiB, workspace 193.3 MiB": alive at the end and expected to be; empty where
// nothing is.
std::string NotListedText(const query::Leaks& leaks);

struct LeaksTextOptions {
  Style style;
  size_t top = 10;  // entries of each list; 0: all
};

// What grows from iteration to iteration, and what nobody freed, for people.
std::string FormatLeaks(const query::Leaks& leaks,
                        const tables::Recording& recording,
                        const LeaksTextOptions& options);

}  // namespace vramscope::output
