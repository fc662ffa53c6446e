// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "query/allocator/allocator_model.h"
#include "query/allocator/allocator_parts.h"

// Expandable segments: address space that memory is mapped into by handles of one size.
namespace vramscope::query {
namespace {

constexpr uint64_t kSmallHandleBytes = 2 * kMebibyte;

uint64_t HandleBytes(const AllocatorPool& pool, const AllocatorSettings& settings) {
  return pool.small ? kSmallHandleBytes : settings.large_segment_bytes;
}

uint64_t RoundUpTo(uint64_t unit, uint64_t bytes) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

AllocatorBlock* AllocatorModel::Expand(const Request& request) {
  AllocatorBlock* block = FindRoom(request);
  if (!block->mapped && !MapBlock(block, std::min(block->bytes, request.bytes)))
    return nullptr;
  // Behind it is unmapped memory, and it is too small: mapping joins the two.
  while (block->bytes < request.bytes) {
    AllocatorBlock* const next = block->next;
    if (next == nullptr || next->mapped)
      return nullptr;  // larger than any address space
    if (!MapBlock(next, std::min(request.bytes - block->bytes, next->bytes)))
      return nullptr;
    block = next;
  }
  EraseFree(block);
  return block;
}

// The lowest run of free and unmapped blocks with room for the request.
AllocatorBlock* AllocatorModel::FindRoom(const Request& request) {
  const auto is_open = [](const AllocatorBlock* block) {
    return block != nullptr && !block->allocated && block->events == 0 && block->used_by.empty();
  };
  for (const auto& [address, unmapped] : request.shelf->unmapped) {
    AllocatorBlock* const first = is_open(unmapped->previous) ? unmapped->previous : unmapped;
    uint64_t bytes = 0;
    for (const AllocatorBlock* block = first; bytes < request.bytes && is_open(block);
         block = block->next)
      bytes += block->bytes;
    if (bytes >= request.bytes)
      return first;
  }
  const uint64_t space =
      RoundUpTo(HandleBytes(*request.shelf->pool, settings_), device_bytes_ + device_bytes_ / 8);
  AllocatorBlock* const block = NewBlock(request.shelf, driver_->Reserve(space), space);
  block->segment = block->address;
  block->mapped = false;
  InsertUnmapped(block);
  return block;
}

void AllocatorModel::InsertUnmapped(AllocatorBlock* block) {
  block->shelf->unmapped.emplace(block->address, block);
}

bool AllocatorModel::MapBlock(AllocatorBlock* block, uint64_t bytes) {
  const uint64_t mapped = RoundUpTo(HandleBytes(*block->shelf->pool, settings_), bytes);
  if (!driver_->Map(block->address, mapped))
    return false;
  block->shelf->unmapped.erase(block->address);
  block->mapped = true;
  if (mapped < block->bytes) {
    AllocatorBlock* const rest =
        NewBlock(block->shelf, block->address + mapped, block->bytes - mapped);
    rest->segment = block->segment;
    rest->mapped = false;
    rest->previous = block;
    rest->next = block->next;
    if (rest->next != nullptr)
      rest->next->previous = rest;
    block->next = rest;
    block->bytes = mapped;
    InsertUnmapped(rest);
  }
  const uint64_t address = block->address;
  MergeInto(block, block->previous);
  MergeInto(block, block->next);
  InsertFree(block);
  total_bytes_ += mapped;
  reserved_bytes_ += mapped;
  Report(AllocatorAction::kMap, address, mapped, block->shelf->stream);
  return true;
}

// Of whole handles; what is left before and behind them stays free.
void AllocatorModel::UnmapBlock(AllocatorBlock* block) {
  AllocatorPool& pool = *block->shelf->pool;
  const uint64_t handle = HandleBytes(pool, settings_);
  const uint64_t base = block->segment;
  const uint64_t begin = base + RoundUpTo(handle, block->address - base);
  const uint64_t end = base + (block->address + block->bytes - base) / handle * handle;
  if (begin >= end)
    return;
  EraseFree(block);
  if (begin > block->address) {
    AllocatorBlock* const before = NewBlock(block->shelf, block->address, begin - block->address);
    before->segment = base;
    before->previous = block->previous;
    before->next = block;
    if (before->previous != nullptr)
      before->previous->next = before;
    block->previous = before;
    InsertFree(before);
  }
  if (const uint64_t rest = block->address + block->bytes - end; rest > 0) {
    AllocatorBlock* const after = NewBlock(block->shelf, end, rest);
    after->segment = base;
    after->previous = block;
    after->next = block->next;
    if (after->next != nullptr)
      after->next->previous = after;
    block->next = after;
    InsertFree(after);
  }
  block->address = begin;
  block->bytes = end - begin;
  block->mapped = false;
  driver_->Unmap(begin, end - begin);
  MergeInto(block, block->previous);
  MergeInto(block, block->next);
  InsertUnmapped(block);
  total_bytes_ -= end - begin;
  reserved_bytes_ -= end - begin;
  if (pool.owner != nullptr)
    --pool.owner->segments;
  Report(AllocatorAction::kUnmap, begin, end - begin, block->shelf->stream);
  if (!block->IsSplit()) {
    driver_->Release(block->address, block->bytes);
    block->shelf->unmapped.erase(block->address);
    DeleteBlock(block);
  }
}

}  // namespace vramscope::query
