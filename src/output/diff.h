// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/diff/diff.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "util/json_writer.h"
#include "util/status.h"

namespace vramscope::output {

inline constexpr char kDiffSchema[] = "vramscope.diff/1";

// One object of the schema vramscope.diff/1 (docs/DIFF.md), ended by a newline.
std::string DiffJson(const query::Diff& diff);
void WriteDiffJson(const query::Diff& diff, util::JsonWriter& json);

// One of the two with its history, for the page.
struct DiffHistory {
  const tables::Recording& recording;
  const std::vector<query::Timeline>& timelines;
};
// One page with what DiffJson() says, and both histories.
util::Status WriteDiffHtml(const query::Diff& diff,
                           const DiffHistory& a,
                           const DiffHistory& b,
                           const std::string& path);

struct DiffTextOptions {
  Style style;
  size_t top = 10;  // rows of the table of changes; 0: all
};

// For people: the largest three causes in the first lines, or that there is no difference; then
// what makes the two less comparable, and the figures.
std::string FormatDiff(const query::Diff& diff, const DiffTextOptions& options);

}  // namespace vramscope::output
