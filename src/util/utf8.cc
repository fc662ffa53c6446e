// SPDX-License-Identifier: Apache-2.0
#include "util/utf8.h"

#include <cstdint>

namespace vramscope::util {

size_t Utf8SequenceBytes(std::string_view text) {
  if (text.empty())
    return 0;
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80)
    return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length)
    return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80)
      return 0;
  }
  const uint8_t second = at(1);
  if (lead == 0xe0 && second < 0xa0)
    return 0;  // overlong
  if (lead == 0xed && second >= 0xa0)
    return 0;  // surrogates
  if (lead == 0xf0 && second < 0x90)
    return 0;  // overlong
  if (lead == 0xf4 && second >= 0x90)
    return 0;  // above U+10FFFF
  return length;
}

std::string ValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8SequenceBytes(text.substr(i));
    if (length == 0) {
      out.append("\xef\xbf\xbd");
      ++i;
    } else {
      out.append(text.substr(i, length));
      i += length;
    }
  }
  return out;
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8SequenceBytes(text.substr(i));
    // U+0300 to U+036F, the combining diacritical marks, stand over the letter before them.
    const bool combining =
        length == 2 &&
        ((static_cast<uint8_t>(text[i]) == 0xcc) ||
         (static_cast<uint8_t>(text[i]) == 0xcd && static_cast<uint8_t>(text[i + 1]) < 0xb0));
    if (!combining)
      ++width;
    i += length == 0 ? 1 : length;
  }
  return width;
}

}  // namespace vramscope::util
