// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace vramscope::util {

inline bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Bytes of the well-formed UTF-8 sequence at the start of `text` (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF), or 0 if there is none.
size_t Utf8SequenceBytes(std::string_view text);

// Bytes at the start of `text` that are printable ASCII: names are little else.
size_t PrintableAsciiBytes(std::string_view text);

// `text` with U+FFFD in place of every byte that is not valid UTF-8.
std::string ValidUtf8(std::string_view text);

// Columns that `text` takes on a terminal: two for an East Asian character or a picture, none for a
// mark over the character before.
size_t DisplayWidth(std::string_view text);

// Names out of a recording are anybody's text. These make of it what other programs and terminals
// take for text and nothing else.

// One line of well-formed UTF-8 without control characters: blanks in place of tabs and line ends,
// U+FFFD in place of all the rest.
std::string OneLine(std::string_view text);

// A field of a CSV file (RFC 4180), as OneLine(), in quotes where it needs them. A text that a
// spreadsheet would take for a formula (it begins with = + - @) gets an apostrophe before it.
std::string CsvCell(std::string_view text);

// The one of `names` that `word` was probably meant to be, "" if none is close.
std::string ClosestName(const std::string& word, const std::vector<std::string>& names);

// The Python package that an installed file belongs to, or "". A module of one file is a package.
std::string_view PackageOf(std::string_view file);

// Whether a compiler of PyTorch's wrote that Python file: "<eval_with_key>.3 from train.py:4 in
// forward" (torch.fx, Dynamo), or a file of Inductor's cache, "zz/czzdj4....py", which is named by
// its hash.
inline bool IsGeneratedCode(std::string_view file) {
  constexpr size_t kHashedName = 40;
  if (file.starts_with("<eval_with_key>"))
    return true;
  const size_t slash = file.rfind('/');
  if (slash == std::string_view::npos || slash < 3 || file[slash - 3] != '/')
    return false;
  const std::string_view name = file.substr(slash + 1);
  return name.size() > kHashedName && name.front() == 'c' && name.ends_with(".py") &&
         file.substr(slash - 2, 2) == name.substr(1, 2);
}

}  // namespace vramscope::util
