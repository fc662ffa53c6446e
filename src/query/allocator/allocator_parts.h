// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
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

// Free blocks, smallest first. Keys stand side by side in chunks. A replay inserts and erases tens
// of millions of them, and each node of a tree would be a cache miss.
//
//   firsts_  | a | h | p |       the first key of each chunk
//   chunks_  | a..g | h..o | p.. |
//
// As in a set, a key that is there is not inserted again: a try to reproduce a recording may place
// two segments at one address. Insertion and erasure invalidate all iterators.
class AllocatorFreeBlocks {
 public:
  class Iterator {
   public:
    const AllocatorFreeKey& operator*() const { return of_->chunks_[chunk_][at_]; }
    const AllocatorFreeKey* operator->() const { return &**this; }
    Iterator& operator++() {
      if (++at_ == of_->chunks_[chunk_].size())
        *this = Iterator(of_, chunk_ + 1, 0);
      return *this;
    }
    Iterator& operator--() {
      if (at_ == 0)
        at_ = of_->chunks_[--chunk_].size();
      --at_;
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) {
      return a.chunk_ == b.chunk_ && a.at_ == b.at_;
    }

   private:
    friend class AllocatorFreeBlocks;
    Iterator(const AllocatorFreeBlocks* of, size_t chunk, size_t at)
        : of_(of), chunk_(chunk), at_(at) {}
    const AllocatorFreeBlocks* of_;
    size_t chunk_, at_;
  };

  Iterator begin() const { return {this, 0, 0}; }
  Iterator end() const { return {this, chunks_.size(), 0}; }
  // The first of that many bytes or more.
  Iterator FindFrom(uint64_t bytes) const;
  void Insert(const AllocatorFreeKey& key);
  void Erase(const AllocatorFreeKey& key);

 private:
  static constexpr size_t kMostInChunk = 64;
  using Chunk = std::vector<AllocatorFreeKey>;  // never empty

  // The last that begins at or before the key; 0: none does.
  size_t ChunkOf(const AllocatorFreeKey& key) const;

  std::vector<AllocatorFreeKey> firsts_;
  std::vector<Chunk> chunks_;
};

// The free memory of one stream in one pool.
struct AllocatorShelf {
  AllocatorShelf(AllocatorPool* of, uint64_t of_stream, std::pmr::memory_resource* nodes)
      : pool(of), stream(of_stream), unmapped(nodes) {}

  AllocatorPool* const pool;
  const uint64_t stream;
  AllocatorFreeBlocks free;
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
