// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vramscope::imports {

// More than any device has: what claims more is damaged. Sums of 4096 of them fit an int64_t.
inline constexpr uint64_t kMostBytes = uint64_t{1} << 50;

// The fields of a line of CSV (RFC 4180), without their quotes.
std::vector<std::string> SplitCsv(std::string_view line);

// Without blanks at both ends.
std::string_view Trimmed(std::string_view text);

}  // namespace vramscope::imports
