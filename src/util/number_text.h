// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace vramscope::util {

// The number that the whole text is; none where anything else stands in it.
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
