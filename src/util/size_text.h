// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "util/status.h"

namespace vramscope::util {

// A SIZE as people type it: `1500000`, `1.5G`, `200MiB`, `64 KB`. K, M, G and T are powers of 1024,
// with or without `i` and `B`, in either case. Fractions of a byte are cut off.
Result<uint64_t> ParseSize(std::string_view text);

// Bytes for people, with three significant digits: `512 B`, `1.50 GiB`, `23.4 MiB`, `117 KiB`.
std::string FormatBytes(uint64_t bytes);
// The same with a sign: `-1.50 GiB`, `+512 B`, `0 B`.
std::string FormatSignedBytes(int64_t bytes);

// A length of time for people: `850 ns`, `12.3 us`, `4.56 ms`, `1.50 s`, `2 min 05 s`, `3 h 07
// min`.
std::string FormatDuration(int64_t duration_ns);

// A count with thousands separated: `1,234,567`.
std::string FormatCount(uint64_t count);
// A count with its noun: `1 row`, `1,234 rows`.
std::string FormatCountOf(uint64_t count, std::string_view noun);

// The number that the whole text is; none if the text contains anything besides.
template <class Number>
std::optional<Number> WholeNumber(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

// An address or a handle: "0x7f00".
inline std::string HexText(uint64_t value) {
  char digits[16];
  char* const end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
  return std::string("0x").append(digits, end);
}

}  // namespace vramscope::util
