// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <set>
#include <vector>

#include "query/allocator/allocator_model.h"

// What AllocatorModel is made of.
namespace vramscope::query {

struct AllocatorPrivatePool;

struct AllocatorFreeKey {
  uint64_t bytes = 0;
  uint64_t address = 0;
  AllocatorBlock* block = nullptr;
  friend bool operator<(const AllocatorFreeKey& a, const AllocatorFreeKey& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.address < b.address;
  }
};

// The free memory of one stream in one pool.
struct AllocatorShelf {
  AllocatorShelf(AllocatorPool* of, uint64_t of_stream, std::pmr::memory_resource* nodes)
      : pool(of), stream(of_stream), free(nodes), unmapped(nodes) {}

  AllocatorPool* const pool;
  const uint64_t stream;
  std::pmr::set<AllocatorFreeKey> free;               // smallest first
  std::pmr::map<uint64_t, AllocatorBlock*> unmapped;  // of expandable segments, by address
};

struct AllocatorPool {
  bool small = false;
  uint64_t searches = 0;
  AllocatorPrivatePool* owner = nullptr;                 // nullptr: a default pool
  std::vector<std::unique_ptr<AllocatorShelf>> shelves;  // by stream
};

struct AllocatorPrivatePool {
  AllocatorPool small;
  AllocatorPool large;
  uint64_t references = 1;
  int64_t segments = 0;  // made and not freed, as PyTorch counts them
  bool no_split = false;
};

}  // namespace vramscope::query
