// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/keywords/keywords.h"
#include "tables/recording.h"
#include "util/json_writer.h"

// What the categories of a dictionary have, as text, JSON and CSV (docs/KEYWORDS.md).
namespace vramscope::output {

inline constexpr char kKeywordsSchema[] = "vramscope.keywords/1";

// One object of the schema vramscope.keywords/1.
std::string KeywordsJson(const query::KeywordReport& report);
void WriteKeywords(const query::KeywordReport& report, util::JsonWriter& json);

// A line an entry, and one for Untrackable: a dictionary's lines of a device sum to what was
// expected.
std::string KeywordsCsv(const query::KeywordReport& report);

struct KeywordsTextOptions {
  Style style;
  std::vector<std::string> closing;  // last lines: where the file is
};

// For people: of each device each dictionary's table, the rows that several categories match, the
// entries, and what could not be named. Several lines, each ended by a newline.
std::string KeywordsText(const query::KeywordReport& report,
                         const tables::Recording& recording,
                         const KeywordsTextOptions& options);

}  // namespace vramscope::output
