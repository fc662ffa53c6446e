// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vramscope::util {

// Bytes of the well-formed UTF-8 sequence at the start of `text` (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF), or 0 where there is none.
size_t Utf8SequenceBytes(std::string_view text);

// Bytes at the start of `text` that are printable ASCII: names are little else.
size_t PrintableAsciiBytes(std::string_view text);

// `text` with U+FFFD in place of every byte that is no UTF-8.
std::string ValidUtf8(std::string_view text);

// Columns that `text` takes on a terminal: two for a character of East Asian scripts and a picture,
// none for what stands over the one before.
size_t DisplayWidth(std::string_view text);

}  // namespace vramscope::util
