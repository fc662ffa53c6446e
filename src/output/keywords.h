// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/keywords/keywords.h"
#include "tables/recording.h"
#include "util/json.h"

// What the categories of dictionaries have, as text, JSON and CSV (docs/KEYWORDS.md): of one
// recording, and of several side by side.
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

// Several recordings side by side: a table a dictionary, a column a device of a file, and one for
// all of them.

inline constexpr char kKeywordSheetSchema[] = "vramscope.keyword_sheet/1";

struct NamedKeywords {
  std::string file;
  query::KeywordReport report;
};

struct SheetFigure {
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// A category, Others or a group.
struct SheetLine {
  std::string name;
  std::string group;
  std::vector<SheetFigure> columns;
  SheetFigure all;
};

struct SheetColumn {
  const NamedKeywords* of = nullptr;
  const query::DeviceReport* device = nullptr;
  std::string name;  // of the file, and of the device where it is one of several
};

struct SheetTable {
  size_t dictionary = 0;
  std::vector<const query::KeywordTable*> columns;
  uint64_t row_bytes = 0;  // of all
  // Columns without an expected sum count with their rows. None if no column has one.
  std::optional<uint64_t> expected_bytes;
  std::optional<int64_t> untrackable_bytes;
  std::vector<SheetLine> categories;  // largest of all first
  SheetLine others;
  std::vector<SheetLine> groups;
};

// Points into the reports.
struct KeywordSheet {
  std::vector<SheetColumn> columns;
  std::vector<SheetTable> tables;  // by dictionary
};

// The reports have the same dictionaries.
KeywordSheet MakeKeywordSheet(const std::vector<NamedKeywords>& reports);

// For people, `top` names of what no keyword matched and of what several match; 0: all.
std::string KeywordSheetText(const std::vector<NamedKeywords>& reports,
                             uint64_t top,
                             const Style& style);

// One object of the schema vramscope.keyword_sheet/1.
std::string KeywordSheetJson(const std::vector<NamedKeywords>& reports);

// A line a category, with Others and Untrackable. A column sums to the expected bytes, or to its
// rows if none are expected.
std::string KeywordSheetCsv(const std::vector<NamedKeywords>& reports);

}  // namespace vramscope::output
