// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// How text meets the terminal: columns, colours, and text from traces made harmless.
namespace vramscope::output {

// A screen that everybody has.
inline constexpr size_t kPlainColumns = 80;

struct Style {
  int columns = 80;
  bool colour = false;
  bool utf8 = false;
  bool wraps = false;  // a terminal: Wrapped() breaks lines
};

// What the terminal behind `fd` can show: its width, colours unless NO_COLOR or TERM=dumb forbid
// them. Not a terminal: 80 columns, no colours, and sentences of one line each. UTF-8 by the
// locale's variables either way.
Style DetectStyle(int fd);
// True if the locale of the environment (LC_ALL, LC_CTYPE, LANG) is a UTF-8 one.
bool LocaleIsUtf8();

// Text of a trace as one line that is safe to print: control characters and broken UTF-8 become
// '?', tabs a space; without `utf8` everything beyond ASCII becomes '?'.
std::string Printable(std::string_view text, bool utf8);

// Printable text cut to `columns`, with an ellipsis where something is missing.
std::string CutEnd(std::string_view text, size_t columns, const Style& style);
// The same with the end kept.
std::string CutStart(std::string_view text, size_t columns, const Style& style);
// The same with both ends kept, a third of the columns for the last one.
std::string CutMiddle(std::string_view text, size_t columns, const Style& style);

// Wraps printable text that must not be cut. On a terminal it breaks lines at blanks: `first`
// columns are taken before the first line, the others begin with `indent` blanks. A word that is
// too long for a line stays whole, so that a path can be copied. Elsewhere the text stays one line,
// for grep.
std::string Wrapped(std::string_view text, size_t first, size_t indent, const Style& style);

std::string PadRight(std::string text, size_t columns);
std::string PadLeft(std::string text, size_t columns);

// Appends a line without the padding at its end, which is invisible until it wraps.
void AppendLine(std::string_view line, std::string* text);

// A bar of block characters, `columns` wide for share 1, with trailing spaces.
std::string Bar(double share, size_t columns, const Style& style);

enum class Ink : uint8_t { kBold, kDim, kBar, kGood, kWarning, kError };
std::string Paint(std::string_view text, Ink ink, const Style& style);

// Digits after the point: one, of bytes none. Grouped: "18,646.8". `unit_bytes` is 1, 1024, ...
std::string InUnit(uint64_t bytes, uint64_t unit_bytes);
// 0.0123 -> "1.2 %"; a share that is not zero never reads as zero: "<0.1 %".
std::string Percent(double share);
// Two digits after the point, for the residual, whose promised limit is a tenth of a percent.
std::string ExactPercent(int64_t part, uint64_t whole);

// Seconds from the start as `--at` takes them, to the nanosecond: "9.998123456", "4.21".
std::string ExactSeconds(int64_t time_ns);

// The unit that suits a table whose largest figure is `largest_bytes`.
struct Unit {
  uint64_t bytes;
  const char* name;
};
Unit TableUnit(uint64_t largest_bytes);

}  // namespace vramscope::output
