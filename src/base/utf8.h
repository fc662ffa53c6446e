// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vramscope::base {

inline constexpr int kMaxUtf8Bytes = 4;

// Writes the code point and returns the byte after it. What is no Unicode scalar value (a lone
// surrogate, a number beyond the last plane) becomes U+FFFD.
inline char* PutUtf8(char* out, uint32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
    c = 0xfffd;
  if (c < 0x80) {
    *out++ = static_cast<char>(c);
    return out;
  }
  if (c < 0x800) {
    *out++ = static_cast<char>(0xc0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      *out++ = static_cast<char>(0xe0 | (c >> 12));
    } else {
      *out++ = static_cast<char>(0xf0 | (c >> 18));
      *out++ = static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    }
    *out++ = static_cast<char>(0x80 | ((c >> 6) & 0x3f));
  }
  *out++ = static_cast<char>(0x80 | (c & 0x3f));
  return out;
}

}  // namespace vramscope::base
