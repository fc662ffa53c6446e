// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace vramscope::util
