// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "query/dimensions/report.h"
#include "util/status.h"

// Memory by the user's own categories, which are made of keywords. The first category that matches
// takes a row, so that every byte is counted once, in a category or in Others.
namespace vramscope::query {

enum class KeywordMatch : uint8_t { kSubstring, kExact, kPrefix, kGlob };
// "substring", "exact", "prefix" or "glob".
util::Result<KeywordMatch> ParseKeywordMatch(const std::string& name);

// The keywords of a category. Several rules may name one category, at different places in the order
// or for different names. Their bytes are added up.
struct KeywordRule {
  std::string category;
  std::string group;  // "": none. Of the first rule that names the category.
  std::vector<std::string> keywords;
  std::vector<Dimension> over;
  KeywordMatch match = KeywordMatch::kSubstring;
  bool case_sensitive = false;  // false: A to Z equal a to z
  bool fallback = false;        // only for rows that no other rule matches
};

struct KeywordDictionary {
  std::string name;
  std::string title;               // "Layer", above its table and below its bar
  std::vector<KeywordRule> rules;  // first match wins
};

// Every dimension that the rules look at, in the order in which they first name it.
std::vector<Dimension> DimensionsOf(const KeywordDictionary& dictionary);

// What a device should hold in all. `device` is "gpu0", "host" or "cpu"; "" is the only GPU, or the
// only device.
struct ExpectedSum {
  std::string device;
  uint64_t bytes = 0;
};

struct KeywordQuery {
  Instant at;
  std::vector<ReportQuery::Where> where;
  std::vector<std::string> own;  // as ReportQuery's
  std::vector<KeywordDictionary> dictionaries;
  std::vector<ExpectedSum> expected;
  uint64_t top = 0;  // entries of each category, overlaps and stacks; 0: all
};

// What one name has within a category.
struct KeywordEntry {
  std::string dimension;  // of the name that matched; "" for rows that have no name at all
  std::string name;
  uint64_t bytes = 0;
  uint64_t rows = 0;
  uint64_t count = 0;  // allocations
};

struct KeywordCategory {
  std::string name;
  std::string group;
  uint64_t bytes = 0;
  uint64_t rows = 0;
  uint64_t count = 0;
  std::vector<KeywordEntry> entries;  // largest first
};

struct KeywordGroup {
  std::string name;
  uint64_t bytes = 0;
  uint64_t rows = 0;
  uint64_t count = 0;
};

// A row that several categories match. The first of them gets its bytes.
struct KeywordOverlap {
  std::vector<std::string> names;  // the row's, of the dictionary's dimensions
  std::vector<std::string> categories;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// One dictionary's view of one device. Categories and Others sum to `row_bytes`; with Untrackable,
// to `expected_bytes`.
struct KeywordTable {
  tables::DeviceId device;
  size_t dictionary = 0;
  uint64_t row_bytes = 0;
  std::optional<uint64_t> expected_bytes;
  bool expected_is_given = false;            // false: it is NVML's figure
  std::optional<int64_t> untrackable_bytes;  // expected - rows; negative where rows are more
  std::vector<KeywordCategory> categories;   // all of the dictionary, largest first
  KeywordCategory others;
  std::vector<KeywordGroup> groups;  // in the order of the dictionary
  std::vector<KeywordOverlap> overlaps;
  uint64_t overlap_rows = 0;  // also of those cut off
  uint64_t overlap_bytes = 0;
};

// Bytes with neither module, parameter nor tag, of category unknown, by the stack that allocated
// them: Python's where there is one, else native.
struct UnnamedStack {
  tables::DeviceId device;
  std::string line;                 // as in a report by line; "": there is none
  std::vector<std::string> frames;  // innermost first; empty: no stack was recorded
  uint64_t bytes = 0;
  uint64_t count = 0;
};

struct KeywordReport {
  std::vector<KeywordDictionary> dictionaries;
  Report report;                      // of the instant, without rows
  std::vector<KeywordTable> tables;   // by device, then dictionary
  std::vector<UnnamedStack> unnamed;  // largest first within a device
};

inline constexpr char kOthers[] = "Others";
inline constexpr char kUntrackable[] = "Untrackable";
inline constexpr char kRest[] = "(rest)";

util::Result<KeywordReport> MakeKeywordReport(const tables::Recording& recording,
                                              const KeywordQuery& query);

}  // namespace vramscope::query
