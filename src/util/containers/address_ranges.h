// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "util/containers/flat_map.h"

namespace vramscope::util {

// Finds the segment of an address, by 2 MiB page: constant time for any number of segments. Ranges
// begin and end anywhere, so a page has a short chain of the ranges that touch it:
//
//   page number -> node -> node -> ...        node: {begin, end, segment}
//
// Only ranges above 1 MiB and mappings are in it, so a chain hardly ever has more than two nodes.
class PageIndex {
 public:
  static constexpr int kPageBits = 21;
  // A range of more pages than this is nonsense from a damaged trace, and is not indexed.
  static constexpr uint64_t kMaxPages = uint64_t{1} << 20;

  void Add(uint64_t begin, uint64_t size, uint32_t segment);
  // Removes a range that was added with the same arguments.
  void Remove(uint64_t begin, uint64_t size);
  // The segment whose range holds the address, or FlatMap::kNone.
  uint32_t Find(uint64_t address) const;

 private:
  struct Node {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint32_t segment = 0;
    uint32_t next = FlatMap::kNone;
  };
  static bool Indexable(uint64_t begin, uint64_t size) {
    return size != 0 && begin + size > begin && (size >> kPageBits) < kMaxPages;
  }

  FlatMap pages_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> free_;
};

inline void PageIndex::Add(uint64_t begin, uint64_t size, uint32_t segment) {
  if (!Indexable(begin, size))
    return;
  const uint64_t last = (begin + size - 1) >> kPageBits;
  for (uint64_t page = begin >> kPageBits; page <= last; ++page) {
    uint32_t node;
    if (free_.empty()) {
      node = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      node = free_.back();
      free_.pop_back();
    }
    uint32_t& head = pages_.FindOrAdd(page);
    nodes_[node] = {begin, begin + size, segment, head};
    head = node;
  }
}

inline void PageIndex::Remove(uint64_t begin, uint64_t size) {
  if (!Indexable(begin, size))
    return;
  const uint64_t last = (begin + size - 1) >> kPageBits;
  for (uint64_t page = begin >> kPageBits; page <= last; ++page) {
    const uint32_t head = pages_.Find(page);
    uint32_t previous = FlatMap::kNone;
    uint32_t at = head;
    while (at != FlatMap::kNone && nodes_[at].begin != begin) {
      previous = at;
      at = nodes_[at].next;
    }
    if (at == FlatMap::kNone)
      continue;
    const uint32_t next = nodes_[at].next;
    if (previous != FlatMap::kNone)
      nodes_[previous].next = next;
    else if (next != FlatMap::kNone)
      pages_.FindOrAdd(page) = next;
    else
      pages_.Erase(page);
    free_.push_back(at);
  }
}

inline uint32_t PageIndex::Find(uint64_t address) const {
  for (uint32_t at = pages_.Find(address >> kPageBits); at != FlatMap::kNone;
       at = nodes_[at].next) {
    if (nodes_[at].begin <= address && address < nodes_[at].end)
      return nodes_[at].segment;
  }
  return FlatMap::kNone;
}

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
