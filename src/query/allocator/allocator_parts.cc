// SPDX-License-Identifier: Apache-2.0
#include "query/allocator/allocator_parts.h"

#include <algorithm>
#include <utility>

namespace vramscope::query {

size_t AllocatorFreeBlocks::ChunkOf(const AllocatorFreeKey& key) const {
  const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), key);
  return after == firsts_.begin() ? 0 : static_cast<size_t>(after - firsts_.begin()) - 1;
}

AllocatorFreeBlocks::Iterator AllocatorFreeBlocks::FindFrom(uint64_t bytes) const {
  if (chunks_.empty())
    return end();
  const AllocatorFreeKey key{bytes, 0, nullptr};
  const size_t number = ChunkOf(key);
  const Chunk& chunk = chunks_[number];
  const auto at = std::lower_bound(chunk.begin(), chunk.end(), key);
  if (at == chunk.end())
    return {this, number + 1, 0};
  return {this, number, static_cast<size_t>(at - chunk.begin())};
}

void AllocatorFreeBlocks::Insert(const AllocatorFreeKey& key) {
  if (chunks_.empty()) {
    chunks_.emplace_back().reserve(kMostInChunk);
    firsts_.emplace_back();
  }
  size_t number = ChunkOf(key);
  if (chunks_[number].size() == kMostInChunk) {
    const auto middle = chunks_[number].begin() + kMostInChunk / 2;
    Chunk upper;
    upper.reserve(kMostInChunk);
    upper.assign(middle, chunks_[number].end());
    chunks_[number].erase(middle, chunks_[number].end());
    firsts_.insert(firsts_.begin() + static_cast<ptrdiff_t>(number) + 1, upper.front());
    chunks_.insert(chunks_.begin() + static_cast<ptrdiff_t>(number) + 1, std::move(upper));
    number = ChunkOf(key);
  }
  Chunk& chunk = chunks_[number];
  const auto at = std::lower_bound(chunk.begin(), chunk.end(), key);
  if (at != chunk.end() && !(key < *at))
    return;
  chunk.insert(at, key);
  firsts_[number] = chunk.front();
}

void AllocatorFreeBlocks::Erase(const AllocatorFreeKey& key) {
  if (chunks_.empty())
    return;
  const size_t number = ChunkOf(key);
  Chunk& chunk = chunks_[number];
  const auto at = std::lower_bound(chunk.begin(), chunk.end(), key);
  if (at == chunk.end() || key < *at)
    return;
  chunk.erase(at);
  if (!chunk.empty()) {
    firsts_[number] = chunk.front();
    return;
  }
  chunks_.erase(chunks_.begin() + static_cast<ptrdiff_t>(number));
  firsts_.erase(firsts_.begin() + static_cast<ptrdiff_t>(number));
}

}  // namespace vramscope::query
