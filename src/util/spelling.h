// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vramscope::util {

// The one of `names` that `word` was probably meant to be, "" where none is close.
std::string ClosestName(const std::string& word, const std::vector<std::string>& names);

}  // namespace vramscope::util
