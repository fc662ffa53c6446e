// SPDX-License-Identifier: Apache-2.0
#include "query/allocator/allocator_model.h"

#include <algorithm>
#include <iterator>

#include "query/allocator/allocator_parts.h"

namespace vramscope::query {
namespace {

constexpr uint64_t kSmallestBlockBytes = 512;
constexpr uint64_t kSmallLimitBytes = kMebibyte;  // with it
constexpr uint64_t kSmallSegmentBytes = 2 * kMebibyte;
constexpr uint64_t kOwnSegmentBytes = 10 * kMebibyte;  // from here on, a request gets its own
constexpr uint64_t kSegmentRoundingBytes = 2 * kMebibyte;

uint64_t SegmentBytesFor(uint64_t bytes, const AllocatorSettings& settings) {
  if (bytes <= kSmallLimitBytes)
    return kSmallSegmentBytes;
  if (bytes < kOwnSegmentBytes)
    return settings.large_segment_bytes;
  return (bytes + kSegmentRoundingBytes - 1) / kSegmentRoundingBytes * kSegmentRoundingBytes;
}

}  // namespace

AllocatorModel::AllocatorModel(const AllocatorRules& rules,
                               uint64_t device_bytes,
                               AllocatorDriver* driver,
                               AllocatorListener* listener)
    : rules_(rules),
      device_bytes_(device_bytes),
      driver_(driver),
      listener_(listener),
      small_(std::make_unique<AllocatorPool>()),
      large_(std::make_unique<AllocatorPool>()) {
  small_->small = true;
}

AllocatorModel::~AllocatorModel() = default;

void AllocatorModel::SetFraction(double fraction) {
  limit_bytes_ = static_cast<uint64_t>(fraction * static_cast<double>(device_bytes_));
  limited_ = rules_.full_fraction_limits || fraction < 1;
}

AllocatorShelf& AllocatorModel::ShelfOf(AllocatorPool& pool, uint64_t stream) {
  const auto at = std::lower_bound(
      pool.shelves.begin(), pool.shelves.end(), stream,
      [](const std::unique_ptr<AllocatorShelf>& a, uint64_t b) { return a->stream < b; });
  if (at != pool.shelves.end() && (*at)->stream == stream)
    return **at;
  return **pool.shelves.insert(at, std::make_unique<AllocatorShelf>(&pool, stream, &nodes_));
}

AllocatorPool& AllocatorModel::PoolOf(bool small) {
  if (open_pools_.empty())
    return small ? *small_ : *large_;
  const uint64_t number = rules_.newest_scope_first ? open_pools_.back() : open_pools_.front();
  AllocatorPrivatePool& pool = *pools_.at(number);
  return small ? pool.small : pool.large;
}

AllocatorBlock* AllocatorModel::NewBlock(AllocatorShelf* shelf, uint64_t address, uint64_t bytes) {
  AllocatorBlock* block = nullptr;
  if (spare_blocks_.empty()) {
    block = &blocks_.emplace_back();
  } else {
    block = spare_blocks_.back();
    spare_blocks_.pop_back();
    *block = AllocatorBlock();
  }
  block->shelf = shelf;
  block->address = address;
  block->bytes = bytes;
  return block;
}

void AllocatorModel::DeleteBlock(AllocatorBlock* block) {
  spare_blocks_.push_back(block);
}

// ---- allocating

AllocatorModel::Request AllocatorModel::MakeRequest(uint64_t requested_bytes, uint64_t stream) {
  Request request;
  request.bytes = settings_.Round(requested_bytes);
  request.segment_bytes = SegmentBytesFor(request.bytes, settings_);
  request.shelf = &ShelfOf(PoolOf(request.bytes <= kSmallLimitBytes), stream);
  request.expandable = settings_.expandable_segments;
  return request;
}

bool AllocatorModel::HasFree(uint64_t requested_bytes, uint64_t stream) {
  return FindFree(MakeRequest(requested_bytes, stream)) != nullptr;
}

AllocatorBlock* AllocatorModel::Allocate(uint64_t requested_bytes, uint64_t stream) {
  if (!HoldsBackEvents())
    ProcessEvents();
  Request request = MakeRequest(requested_bytes, stream);
  AllocatorBlock* block = TakeFree(request);
  if (block == nullptr)
    block = TakeAnyhow(&request);
  if (block == nullptr) {
    Report(AllocatorAction::kOutOfMemory, 0, request.bytes, stream);
    return nullptr;
  }
  return HandOut(block, request, requested_bytes);
}

AllocatorBlock* AllocatorModel::TakeFree(const Request& request) {
  if (CollectsGarbage())
    ++request.shelf->pool->searches;
  AllocatorBlock* const block = FindFree(request);
  if (block != nullptr)
    EraseFree(block);
  return block;
}

// The smallest free block that is large enough, with the exceptions of the real one.
AllocatorBlock* AllocatorModel::FindFree(const Request& request) const {
  const auto& free = request.shelf->free;
  auto it = free.FindFrom(request.bytes);
  if (it == free.end())
    return nullptr;
  if (it->block->segment != 0 && request.expandable) {
    // What it can grow to counts, up to the first that is no better.
    const auto room = [](const AllocatorBlock& block) {
      return block.bytes + (block.next != nullptr && !block.next->mapped ? block.next->bytes : 0);
    };
    for (auto next = it; it->block->segment != 0; it = next) {
      if (++next == free.end() || room(*next->block) >= room(*it->block))
        break;
    }
  } else if (it->block->segment != 0) {
    do {
      ++it;
    } while (it != free.end() && it->block->segment != 0);
    if (it == free.end())
      return nullptr;
  }
  const uint64_t max_split = settings_.max_split_bytes;
  if (request.bytes < max_split && it->bytes >= max_split)
    return nullptr;
  if (request.bytes >= max_split &&
      it->bytes >= request.bytes + settings_.max_non_split_rounding_bytes)
    return nullptr;
  return it->block;
}

// What is tried when no free block will do, until something succeeds.
AllocatorBlock* AllocatorModel::TakeAnyhow(Request* request) {
  if (CollectsGarbage())
    CollectGarbage();
  AllocatorBlock* block = MakeSegment(*request, false);
  if (block == nullptr && rules_.fallback_before_release)
    block = TakeFromFallback(request);
  if (block == nullptr && ReleaseLarge(*request))
    block = MakeSegment(*request, false);
  if (block == nullptr && !HoldsBackEvents() && ReleaseCached(0))
    block = MakeSegment(*request, true);
  if (block == nullptr && !rules_.fallback_before_release)
    block = TakeFromFallback(request);
  return block;
}

AllocatorBlock* AllocatorModel::TakeFromFallback(Request* request) {
  if (request->shelf->pool->owner != nullptr)
    return nullptr;
  for (const uint64_t number : fallback_pools_) {
    AllocatorPrivatePool& pool = *pools_.at(number);
    Request other = *request;
    other.shelf =
        &ShelfOf(request->shelf->pool->small ? pool.small : pool.large, request->shelf->stream);
    other.expandable = request->expandable && !rules_.fallback_before_release;
    if (AllocatorBlock* const block = TakeFree(other)) {
      *request = other;
      return block;
    }
  }
  return nullptr;
}

AllocatorBlock* AllocatorModel::MakeSegment(const Request& request, bool retry) {
  retries_ += retry ? 1 : 0;
  if (limited_ && total_bytes_ + request.segment_bytes > limit_bytes_)
    return nullptr;
  AllocatorPrivatePool* const owner = request.shelf->pool->owner;
  if (request.expandable) {
    AllocatorBlock* const block = Expand(request);
    if (block != nullptr && owner != nullptr)
      ++owner->segments;
    return block;
  }
  const uint64_t address = driver_->Allocate(request.segment_bytes);
  if (address == 0)
    return nullptr;
  if (owner != nullptr)
    ++owner->segments;
  total_bytes_ += request.segment_bytes;
  reserved_bytes_ += request.segment_bytes;
  Report(AllocatorAction::kSegmentAlloc, address, request.segment_bytes, request.shelf->stream);
  return NewBlock(request.shelf, address, request.segment_bytes);
}

bool AllocatorModel::ShouldSplit(const AllocatorBlock& block, const Request& request) const {
  const AllocatorPool& pool = *block.shelf->pool;
  if (pool.owner != nullptr && pool.owner->no_split)
    return false;
  const uint64_t remainder = block.bytes - request.bytes;
  if (pool.small || request.expandable)
    return remainder >= kSmallestBlockBytes;
  return request.bytes < settings_.max_split_bytes && remainder > kSmallLimitBytes;
}

AllocatorBlock* AllocatorModel::HandOut(AllocatorBlock* block,
                                        const Request& request,
                                        uint64_t requested_bytes) {
  if (ShouldSplit(*block, request)) {
    AllocatorBlock* const rest = block;
    block = NewBlock(rest->shelf, rest->address, request.bytes);
    block->segment = rest->segment;
    block->previous = rest->previous;
    if (block->previous != nullptr)
      block->previous->next = block;
    block->next = rest;
    rest->previous = block;
    rest->address += request.bytes;
    rest->bytes -= request.bytes;
    InsertFree(rest);
  }
  block->allocated = true;
  block->requested_bytes = requested_bytes;
  allocated_bytes_ += block->bytes;
  active_bytes_ += block->bytes;
  Report(AllocatorAction::kAlloc, block->address, requested_bytes, block->shelf->stream);
  return block;
}

// ---- freeing

void AllocatorModel::Free(AllocatorBlock* block) {
  block->allocated = false;
  allocated_bytes_ -= block->bytes;
  Report(AllocatorAction::kFreeRequested, block->address, block->requested_bytes,
         block->shelf->stream);
  if (block->used_by.empty()) {
    FreeBlock(block);
  } else if (HoldsBackEvents()) {
    held_back_.push_back(block);
  } else {
    RecordEvents(block);
  }
}

void AllocatorModel::RecordStream(AllocatorBlock* block, uint64_t stream) {
  if (stream == block->shelf->stream)
    return;
  const auto add = [stream](std::vector<uint64_t>* streams) {
    if (std::find(streams->begin(), streams->end(), stream) == streams->end())
      streams->push_back(stream);
  };
  add(&block->used_by);
  if (HoldsBackEvents())
    add(&block->used_in_capture);
}

void AllocatorModel::FreeBlock(AllocatorBlock* block) {
  Report(AllocatorAction::kFreeCompleted, block->address, block->requested_bytes,
         block->shelf->stream);
  active_bytes_ -= block->bytes;
  AllocatorBlock* const next = block->next;
  MergeInto(block, block->previous);
  MergeInto(block, next);
  InsertFree(block);
}

void AllocatorModel::InsertFree(AllocatorBlock* block) {
  block->searches_before = block->shelf->pool->searches;
  block->shelf->free.Insert({block->bytes, block->address, block});
}

void AllocatorModel::EraseFree(AllocatorBlock* block) {
  block->shelf->free.Erase({block->bytes, block->address, block});
}

void AllocatorModel::MergeInto(AllocatorBlock* block, AllocatorBlock* neighbour) {
  if (neighbour == nullptr || neighbour->allocated || neighbour->events > 0 ||
      !neighbour->used_by.empty() || neighbour->mapped != block->mapped)
    return;
  if (neighbour->mapped)
    EraseFree(neighbour);
  else
    neighbour->shelf->unmapped.erase(neighbour->address);
  if (block->previous == neighbour) {
    block->address = neighbour->address;
    block->previous = neighbour->previous;
    if (block->previous != nullptr)
      block->previous->next = block;
  } else {
    block->next = neighbour->next;
    if (block->next != nullptr)
      block->next->previous = block;
  }
  block->bytes += neighbour->bytes;
  DeleteBlock(neighbour);
}

void AllocatorModel::RecordEvents(AllocatorBlock* block) {
  for (const uint64_t stream : block->used_by) {
    waiting_[stream].emplace_back(driver_->RecordEvent(stream), block);
    ++block->events;
  }
  block->used_by.clear();
}

void AllocatorModel::RecordHeldBack() {
  for (AllocatorBlock* const block : held_back_) {
    // What a graph used is over when its capture is.
    for (const uint64_t stream : block->used_in_capture)
      std::erase(block->used_by, stream);
    block->used_in_capture.clear();
    RecordEvents(block);
    if (block->events == 0)
      FreeBlock(block);
  }
  held_back_.clear();
}

void AllocatorModel::EventIsOver(AllocatorBlock* block) {
  if (--block->events == 0)
    FreeBlock(block);
}

void AllocatorModel::ProcessEvents() {
  if (!held_back_.empty())
    RecordHeldBack();
  for (auto& [stream, queue] : waiting_) {
    while (!queue.empty() && driver_->IsReady(stream, queue.front().first)) {
      AllocatorBlock* const block = queue.front().second;
      queue.pop_front();
      EventIsOver(block);
    }
  }
}

void AllocatorModel::SynchronizeEvents(const AllocatorPrivatePool* only) {
  RecordHeldBack();
  for (auto& [stream, queue] : waiting_) {
    auto entries = std::move(queue);
    queue.clear();
    for (const auto& [event, block] : entries) {
      if (only != nullptr && block->shelf->pool->owner != only) {
        queue.emplace_back(event, block);
        continue;
      }
      driver_->Synchronize(stream, event);
      EventIsOver(block);
    }
  }
}

// ---- giving back

void AllocatorModel::CollectGarbage() {
  const auto threshold = static_cast<uint64_t>(settings_.garbage_collection_threshold *
                                               static_cast<double>(limit_bytes_));
  if (total_bytes_ <= threshold)
    return;
  const uint64_t target = total_bytes_ - threshold;
  const auto age = [this](const AllocatorBlock& block) {
    return large_->searches - block.searches_before;
  };
  uint64_t ages = 0;
  uint64_t count = 0;
  for (const auto& shelf : large_->shelves) {
    for (const AllocatorFreeKey& key : shelf->free) {
      if (!key.block->IsSplit()) {
        ages += age(*key.block);
        ++count;
      }
    }
  }
  uint64_t reclaimed = 0;
  for (bool freed = true; freed && count > 0 && reclaimed < target;) {
    const double oldest = static_cast<double>(ages) / static_cast<double>(count);
    freed = false;
    std::vector<AllocatorBlock*> to_release;
    for (const auto& shelf : large_->shelves) {
      for (const auto& [bytes, address, block] : shelf->free) {
        if (!block->IsSplit() && block->segment == 0 && static_cast<double>(age(*block)) >= oldest)
          to_release.push_back(block);
      }
    }
    for (AllocatorBlock* const block : to_release) {
      freed = true;
      reclaimed += block->bytes;
      ages -= age(*block);
      --count;
      ReleaseSegment(block);
    }
  }
}

// Enough of the blocks that are too large to split; whether it was enough.
bool AllocatorModel::ReleaseLarge(const Request& request) {
  const uint64_t max_split = settings_.max_split_bytes;
  if (max_split == UINT64_MAX)
    return false;
  const uint64_t wanted = std::max(request.bytes, max_split);
  const auto& free = request.shelf->free;
  auto it = free.FindFrom(wanted);
  if (it != free.end() && it->block->segment == 0) {
    ReleaseSegment(it->block);
    return true;
  }
  std::vector<AllocatorBlock*> to_release;
  uint64_t released = 0;
  while (released < wanted && it != free.begin() && (--it)->bytes >= max_split) {
    if (it->block->segment != 0)
      continue;
    released += it->bytes;
    to_release.push_back(it->block);
  }
  for (AllocatorBlock* const block : to_release)
    ReleaseSegment(block);
  return released >= wanted;
}

bool AllocatorModel::ReleaseCached(uint64_t number) {
  if (number == 0 && !HoldsBackEvents()) {
    SynchronizeEvents(nullptr);
    ReleaseBlocks(*large_);
    ReleaseBlocks(*small_);
  }
  for (auto it = freeable_pools_.begin(); it != freeable_pools_.end();) {
    const uint64_t each = *it;
    if (number != 0 && each != number) {
      ++it;
      continue;
    }
    AllocatorPrivatePool& pool = *pools_.at(each);
    if (number != 0)
      SynchronizeEvents(&pool);
    ReleaseBlocks(pool.small);
    ReleaseBlocks(pool.large);
    if (pool.segments != 0) {
      ++it;
      continue;
    }
    it = freeable_pools_.erase(it);
    fallback_pools_.erase(each);
    // PyTorch counts expandable segments so that blocks may be left.
    const auto found = pools_.find(each);
    dropped_pools_.push_back(std::move(found->second));
    pools_.erase(found);
  }
  return true;
}

void AllocatorModel::ReleaseBlocks(AllocatorPool& pool) {
  std::vector<AllocatorBlock*> to_release, to_unmap;
  for (const auto& shelf : pool.shelves) {
    for (const auto& [bytes, address, block] : shelf->free) {
      if (block->segment != 0)
        to_unmap.push_back(block);
      else if (!block->IsSplit())
        to_release.push_back(block);
    }
  }
  for (AllocatorBlock* const block : to_release)
    ReleaseSegment(block);
  for (AllocatorBlock* const block : to_unmap)
    UnmapBlock(block);
}

void AllocatorModel::ReleaseSegment(AllocatorBlock* block) {
  driver_->Free(block->address, block->bytes);
  if (block->shelf->pool->owner != nullptr)
    --block->shelf->pool->owner->segments;
  total_bytes_ -= block->bytes;
  reserved_bytes_ -= block->bytes;
  Report(AllocatorAction::kSegmentFree, block->address, block->bytes, block->shelf->stream);
  EraseFree(block);
  DeleteBlock(block);
}

void AllocatorModel::EmptyCache() {
  ReleaseCached(0);
}

// ---- private pools

void AllocatorModel::CreatePool(uint64_t number) {
  std::unique_ptr<AllocatorPrivatePool>& pool = pools_[number];
  if (pool != nullptr) {
    ++pool->references;
    return;
  }
  pool = std::make_unique<AllocatorPrivatePool>();
  pool->small.small = true;
  pool->small.owner = pool.get();
  pool->large.owner = pool.get();
}

void AllocatorModel::OpenPool(uint64_t number) {
  CreatePool(number);
  open_pools_.push_back(number);
}

void AllocatorModel::ClosePool(uint64_t number) {
  const auto it = std::find(open_pools_.begin(), open_pools_.end(), number);
  if (it != open_pools_.end())
    open_pools_.erase(it);
}

void AllocatorModel::ReleasePool(uint64_t number) {
  const auto it = pools_.find(number);
  if (it == pools_.end() || it->second->references == 0)
    return;
  if (--it->second->references == 0)
    freeable_pools_.insert(number);
}

void AllocatorModel::EmptyPool(uint64_t number) {
  ReleaseCached(number);
}

void AllocatorModel::UseOnOutOfMemory(uint64_t number) {
  if (pools_.count(number) == 0)
    CreatePool(number);
  fallback_pools_.insert(number);
}

void AllocatorModel::SetNoSplit(uint64_t number) {
  if (pools_.count(number) == 0)
    CreatePool(number);
  pools_.at(number)->no_split = rules_.has_no_split;
}

}  // namespace vramscope::query
