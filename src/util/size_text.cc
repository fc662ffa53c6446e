// SPDX-License-Identifier: Apache-2.0
#include "util/size_text.h"

#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>

#include "util/json.h"

namespace vramscope::util {
namespace {

Status NoSize(std::string_view text) {
  return Status::Error(JsonQuoted(text) +
                       " is not a size: write bytes (1500000) or a number with K, M, G or T "
                       "(1.5G, 200MiB)");
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// Three significant digits; `value` is at least 1 and below 1024.
std::string ThreeDigits(double value) {
  char text[32];
  // The limits are where rounding would otherwise add a digit.
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  const double scale = decimals == 2 ? 100 : decimals == 1 ? 10 : 1;
  // Half up, as columns of one unit and the page round; printf rounds a half to even.
  std::snprintf(text, sizeof text, "%.*f", decimals, std::floor(value * scale + 0.5) / scale);
  return text;
}

}  // namespace

Result<uint64_t> ParseSize(std::string_view text) {
  size_t at = 0;
  unsigned __int128 whole = 0;
  bool any_digit = false;
  constexpr auto kLimit = static_cast<unsigned __int128>(std::numeric_limits<uint64_t>::max());
  for (; at < text.size() && IsDigit(text[at]); ++at) {
    whole = whole * 10 + static_cast<unsigned>(text[at] - '0');
    any_digit = true;
    if (whole > kLimit)
      return NoSize(text);
  }
  uint64_t fraction = 0;
  uint64_t fraction_unit = 1;
  if (at < text.size() && text[at] == '.') {
    for (++at; at < text.size() && IsDigit(text[at]); ++at) {
      any_digit = true;
      if (fraction_unit >= 1'000'000'000'000'000)
        continue;  // finer than a byte of a tebibyte
      fraction = fraction * 10 + static_cast<uint64_t>(text[at] - '0');
      fraction_unit *= 10;
    }
  }
  if (!any_digit)
    return NoSize(text);
  while (at < text.size() && text[at] == ' ')
    ++at;
  unsigned shift = 0;
  if (at < text.size()) {
    switch (text[at] | 0x20) {
      case 'k':
        shift = 10;
        break;
      case 'm':
        shift = 20;
        break;
      case 'g':
        shift = 30;
        break;
      case 't':
        shift = 40;
        break;
      default:
        break;
    }
    if (shift != 0) {
      ++at;
      if (at + 1 < text.size() && (text[at] | 0x20) == 'i' && (text[at + 1] | 0x20) == 'b')
        ++at;
    }
    if (at < text.size() && (text[at] | 0x20) == 'b')
      ++at;
  }
  if (at != text.size())
    return NoSize(text);
  if (shift == 0 && fraction != 0)
    return NoSize(text);
  const unsigned __int128 bytes =
      (whole << shift) + ((static_cast<unsigned __int128>(fraction) << shift) / fraction_unit);
  if (bytes > kLimit)
    return NoSize(text);
  return static_cast<uint64_t>(bytes);
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1024)
    return std::to_string(bytes) + " B";
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.6 MiB would round to "1024 MiB".
  while (value >= 1023.5 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return ThreeDigits(value) + " " + kUnits[unit];
}

std::string FormatSignedBytes(int64_t bytes) {
  if (bytes == 0)
    return "0 B";
  const auto magnitude =
      bytes < 0 ? uint64_t{0} - static_cast<uint64_t>(bytes) : static_cast<uint64_t>(bytes);
  return (bytes < 0 ? "-" : "+") + FormatBytes(magnitude);
}

std::string FormatDuration(int64_t duration_ns) {
  if (duration_ns < 0) {
    const int64_t magnitude = duration_ns == std::numeric_limits<int64_t>::min()
                                  ? std::numeric_limits<int64_t>::max()
                                  : -duration_ns;
    return "-" + FormatDuration(magnitude);
  }
  if (duration_ns < 1000)
    return std::to_string(duration_ns) + " ns";
  const auto ns = static_cast<double>(duration_ns);
  if (ns < 999.5e3)
    return ThreeDigits(ns / 1e3) + " us";
  if (ns < 999.5e6)
    return ThreeDigits(ns / 1e6) + " ms";
  if (ns < 59.95e9)
    return ThreeDigits(ns / 1e9) + " s";
  char text[64];
  const int64_t seconds = (duration_ns + 500'000'000) / 1'000'000'000;
  if (seconds < 3600) {
    std::snprintf(text, sizeof text, "%lld min %02lld s", static_cast<long long>(seconds / 60),
                  static_cast<long long>(seconds % 60));
  } else {
    std::snprintf(text, sizeof text, "%lld h %02lld min", static_cast<long long>(seconds / 3600),
                  static_cast<long long>(seconds % 3600 / 60));
  }
  return text;
}

std::string FormatCount(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t at = digits.size(); at > 3; at -= 3)
    digits.insert(at - 3, 1, ',');
  return digits;
}

std::string FormatCountOf(uint64_t count, std::string_view noun) {
  return FormatCount(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace vramscope::util
