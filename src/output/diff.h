// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "output/terminal.h"
#include "query/diff.h"
#include "tables/recording.h"

namespace vramscope::output {

inline constexpr char kDiffSchema[] = "vramscope.diff/1";

// What was compared, for the writers: the files as they were named, and what ran.
struct DiffSource {
  std::string file;
  std::string command;
};

// One object of the schema vramscope.diff/1 (docs/DIFF.md), ended by a newline.
std::string DiffJson(const query::Diff& diff, const DiffSource& a, const DiffSource& b);

struct DiffTextOptions {
  Style style;
  size_t top = 10;  // rows of the table of changes; 0: all
};

// For people: the largest three causes in the first lines, or that there is no difference; then
// what makes the two less comparable, and the figures.
std::string FormatDiff(const query::Diff& diff,
                       const DiffSource& a,
                       const DiffSource& b,
                       const DiffTextOptions& options);

}  // namespace vramscope::output
