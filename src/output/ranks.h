// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/diff/ranks.h"
#include "util/json_writer.h"
#include "util/status.h"

namespace vramscope::output {

inline constexpr char kRanksSchema[] = "vramscope.ranks/1";

// All ranks together, the imbalance in words, and a row each; of many the heaviest and the
// lightest.
std::string FormatRanks(const query::RankReport& report, const Style& style);

// For the end of a recording's own report: how many ranks it has, and which of them holds more than
// the others; empty where it has fewer than two. `file`: a word of the shell.
std::string RanksLine(const query::RankReport& report, const std::string& file);

// The numbers in their order, runs together: "0-3, 7".
std::string NumberRanges(const std::vector<int32_t>& numbers);

// The imbalance in words.
std::string ImbalanceText(const query::RankReport& report);

// One object of the schema vramscope.ranks/1 (docs/REPORT_SCHEMA.md).
void WriteRanksJson(const query::RankReport& report, util::JsonWriter& json);
std::string RanksJson(const query::RankReport& report);

// One page of all ranks: their histories on one axis, the imbalance, and a row each. Its figures
// are those of the JSON.
util::Status WriteRanksHtml(const query::RankReport& report, const std::string& path);

}  // namespace vramscope::output
