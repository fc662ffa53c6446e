// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format/memory_words.h"

// Figures of an iteration by category.
namespace vramscope::query {

inline uint64_t BytesOf(const std::vector<uint64_t>& by_category, format::Category category) {
  const auto at = static_cast<size_t>(category);
  return at < by_category.size() ? by_category[at] : 0;
}

// "optimizer state" -> "optimizer_state_peak": a name that needs no quotes anywhere.
inline std::string CategoryColumn(format::Category category, const char* suffix) {
  std::string name = format::CategoryName(category);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name + suffix;
}

}  // namespace vramscope::query
