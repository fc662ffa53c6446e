// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace vramscope::util {

// A set of addresses, as few ranges: neighbours become one.
class RangeSet {
 public:
  void Add(uint64_t begin, uint64_t end) {
    if (begin >= end)
      return;
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
    }
    while (next != ranges_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ranges_.erase(next);
    }
    ranges_.emplace_hint(next, begin, end);
  }

  void Remove(uint64_t begin, uint64_t end) {
    auto range = ranges_.upper_bound(begin);
    if (range != ranges_.begin() && std::prev(range)->second > begin)
      --range;
    while (range != ranges_.end() && range->first < end) {
      const auto [first, last] = *range;
      range = ranges_.erase(range);
      if (first < begin)
        ranges_.emplace_hint(range, first, begin);
      if (end < last)
        range = ranges_.emplace_hint(range, end, last);
    }
  }

  // How many of the addresses from `begin` on are in the set.
  uint64_t Count(uint64_t begin, uint64_t size) const {
    const uint64_t end = begin + size;
    auto range = ranges_.upper_bound(begin);
    if (range != ranges_.begin())
      --range;
    uint64_t count = 0;
    for (; range != ranges_.end() && range->first < end; ++range) {
      const uint64_t first = std::max(begin, range->first);
      const uint64_t last = std::min(end, range->second);
      count += last > first ? last - first : 0;
    }
    return count;
  }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin -> end
};

}  // namespace vramscope::util
