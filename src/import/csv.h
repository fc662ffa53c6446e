// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vramscope::imports {

// The fields of a line of CSV (RFC 4180), without their quotes.
std::vector<std::string> SplitCsv(std::string_view line);

// Without blanks at both ends.
std::string_view Trimmed(std::string_view text);

}  // namespace vramscope::imports
