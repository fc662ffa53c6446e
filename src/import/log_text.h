// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Parses fields and times of logs. None of the time functions accepts trailing text.
namespace vramscope::imports {

// The fields of a line of CSV (RFC 4180), without their quotes.
std::vector<std::string> SplitCsv(std::string_view line);

// Without blanks at both ends.
std::string_view Trimmed(std::string_view text);

struct WallTime {
  int64_t ns = 0;             // since 1970; a time without a zone counts as UTC
  bool has_fraction = false;  // finer than a second
};

// "2024/05/01 10:00:00.123" (nvidia-smi), "2024-05-01T10:00:00+08:00" (ISO 8601),
// "1714557600.5" (seconds since 1970; milli- and microseconds by their size), "Wed May  1 10:00:00
// 2024" (the head of nvidia-smi's table).
std::optional<WallTime> ParseWallTime(std::string_view text);

// Nanoseconds since midnight: "16:00:18.508800", or ":" in place of the point.
std::optional<int64_t> ParseTimeOfDay(std::string_view text);

}  // namespace vramscope::imports
