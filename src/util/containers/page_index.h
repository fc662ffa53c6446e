// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "util/containers/flat_map.h"

namespace vramscope::util {

// Which segment holds an address, by 2 MiB page: constant time however many segments live. Ranges
// begin and end anywhere, so a page has a short chain of the ranges that touch it:
//
//   page number -> node -> node -> ...        node: {begin, end, segment}
//
// Only ranges above 1 MiB and mappings stand here, so a chain has hardly ever more than two nodes.
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

}  // namespace vramscope::util
