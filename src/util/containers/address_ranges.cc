// SPDX-License-Identifier: Apache-2.0

#include "util/containers/address_ranges.h"

namespace vramscope::util {

void PageIndex::Add(uint64_t begin, uint64_t size, uint32_t segment) {
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

void PageIndex::Remove(uint64_t begin, uint64_t size) {
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

uint32_t PageIndex::Find(uint64_t address) const {
  for (uint32_t at = pages_.Find(address >> kPageBits); at != FlatMap::kNone;
       at = nodes_[at].next) {
    if (nodes_[at].begin <= address && address < nodes_[at].end)
      return nodes_[at].segment;
  }
  return FlatMap::kNone;
}

}  // namespace vramscope::util
