// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tables/ids.h"

namespace vramscope::tables {

// All texts of a recording, end to end, each once where Intern() added it. Index 0 is "".
class StringTable {
 public:
  StringTable() : ends_(1, 0) {}

  // A text as it comes: for a table that was interned before.
  StringId Add(std::string_view text) {
    bytes_.append(text);
    ends_.push_back(bytes_.size());
    return StringId{static_cast<uint32_t>(ends_.size() - 1)};
  }
  std::string_view operator[](StringId id) const {
    if (id.value == 0 || id.value >= ends_.size())
      return {};
    const uint64_t begin = ends_[id.value - 1];
    return std::string_view(bytes_).substr(begin, ends_[id.value] - begin);
  }
  size_t size() const { return ends_.size(); }
  uint64_t size_bytes() const { return bytes_.size(); }

 private:
  std::string bytes_;
  std::vector<uint64_t> ends_;  // by id: where it ends
};

}  // namespace vramscope::tables
