// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

// Names out of a recording are anybody's text. These make of it what other programs and terminals
// take for text and nothing else.
namespace vramscope::util {

// One line of well-formed UTF-8 without control characters: blanks in place of tabs and line ends,
// U+FFFD in place of all the rest.
std::string OneLine(std::string_view text);

// A field of a CSV file (RFC 4180), as OneLine(), in quotes where it needs them. One that a
// spreadsheet would take for a formula (it begins with = + - @) has an apostrophe before it.
std::string CsvCell(std::string_view text);

}  // namespace vramscope::util
