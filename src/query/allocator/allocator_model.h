// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <memory_resource>
#include <set>
#include <utility>
#include <vector>

#include "query/allocator/allocator_driver.h"
#include "query/allocator/allocator_settings.h"

namespace vramscope::query {

struct AllocatorPool;
struct AllocatorShelf;
struct AllocatorPrivatePool;

// An address range of PyTorch's allocator. Neighbours are those of its segment.
struct AllocatorBlock {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t requested_bytes = 0;
  AllocatorShelf* shelf = nullptr;  // its pool and stream, for life
  AllocatorBlock* previous = nullptr;
  AllocatorBlock* next = nullptr;
  uint64_t segment = 0;  // address of the expandable segment; 0: of none
  uint64_t searches_before = 0;
  uint32_t events = 0;  // not ready yet
  bool allocated = false;
  bool mapped = true;
  std::vector<uint64_t> used_by;  // other streams, since it was allocated
  std::vector<uint64_t> used_in_capture;

  bool IsSplit() const { return previous != nullptr || next != nullptr; }
};

enum class AllocatorAction : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kMap,
  kUnmap,
  kOutOfMemory,
};

struct AllocatorEvent {
  AllocatorAction action;
  uint64_t address;  // 0: out of memory
  uint64_t bytes;    // of an alloc and a free: requested
  uint64_t stream;
};

class AllocatorListener {
 public:
  virtual ~AllocatorListener() = default;
  virtual void OnAllocatorEvent(const AllocatorEvent& event) = 0;
};

// PyTorch's CUDA caching allocator of one device, byte for byte, without a GPU. It holds the
// blocks, the free ones by stream and size, the pools, and what waits for events of streams.
// query/allocator/ replays recorded requests through it; tests/allocator/ compares it with the
// released library. Memory comes from an AllocatorDriver. Each segment made or freed goes to the
// listener in the order of the real allocator's trace, as do blocks.
// It never guesses: a call that the allocator would refuse is one here. It never moves a block, and
// never looks at another stream's or pool's. Not modelled: allocators of a MemPool's own, graphs
// that restore a pool's checkpoint, callbacks that free memory of CUDA IPC.
// The rules are c10/cuda/CUDACachingAllocator.cpp; AllocatorRules has what differs by version.
class AllocatorModel {
 public:
  // `device_bytes`: the whole device, of which a fraction is a part.
  AllocatorModel(const AllocatorRules& rules,
                 uint64_t device_bytes,
                 AllocatorDriver* driver,
                 AllocatorListener* listener = nullptr);
  ~AllocatorModel();
  AllocatorModel(const AllocatorModel&) = delete;
  AllocatorModel& operator=(const AllocatorModel&) = delete;

  AllocatorSettings& settings() { return settings_; }
  void SetFraction(double fraction);

  // nullptr: out of memory. `requested_bytes` is not 0.
  AllocatorBlock* Allocate(uint64_t requested_bytes, uint64_t stream);
  // Whether a free block would do for it now.
  bool HasFree(uint64_t requested_bytes, uint64_t stream);
  void Free(AllocatorBlock* block);
  void RecordStream(AllocatorBlock* block, uint64_t stream);
  void EmptyCache();

  // Private pools, by number; 0 is none. A pool begins with one reference; opening adds one.
  void CreatePool(uint64_t number);
  void OpenPool(uint64_t number);
  void ClosePool(uint64_t number);
  void ReleasePool(uint64_t number);
  void EmptyPool(uint64_t number);
  void UseOnOutOfMemory(uint64_t number);
  void SetNoSplit(uint64_t number);

  uint64_t allocated_bytes() const { return allocated_bytes_; }
  uint64_t active_bytes() const { return active_bytes_; }
  uint64_t reserved_bytes() const { return reserved_bytes_; }
  uint64_t retries() const { return retries_; }

 private:
  struct Request {
    uint64_t bytes = 0;  // rounded
    uint64_t segment_bytes = 0;
    AllocatorShelf* shelf = nullptr;
    bool expandable = false;
  };

  AllocatorShelf& ShelfOf(AllocatorPool& pool, uint64_t stream);
  AllocatorPool& PoolOf(bool small);
  AllocatorBlock* NewBlock(AllocatorShelf* shelf, uint64_t address, uint64_t bytes);
  void DeleteBlock(AllocatorBlock* block);
  void Report(AllocatorAction action, uint64_t address, uint64_t bytes, uint64_t stream) {
    if (listener_ != nullptr)
      listener_->OnAllocatorEvent({action, address, bytes, stream});
  }

  bool CollectsGarbage() const { return limited_ && settings_.garbage_collection_threshold > 0; }
  bool HoldsBackEvents() const { return rules_.scope_is_capture && !open_pools_.empty(); }

  Request MakeRequest(uint64_t requested_bytes, uint64_t stream);
  // The free block that does for it, or nullptr.
  AllocatorBlock* FindFree(const Request& request) const;
  AllocatorBlock* TakeFree(const Request& request);
  AllocatorBlock* TakeAnyhow(Request* request);
  AllocatorBlock* TakeFromFallback(Request* request);
  AllocatorBlock* MakeSegment(const Request& request, bool retry);
  AllocatorBlock* HandOut(AllocatorBlock* block, const Request& request, uint64_t requested_bytes);
  bool ShouldSplit(const AllocatorBlock& block, const Request& request) const;

  void FreeBlock(AllocatorBlock* block);
  void InsertFree(AllocatorBlock* block);
  void EraseFree(AllocatorBlock* block);
  void MergeInto(AllocatorBlock* block, AllocatorBlock* neighbour);

  void RecordEvents(AllocatorBlock* block);
  void RecordHeldBack();
  void ProcessEvents();
  // Of one pool; of all with nullptr.
  void SynchronizeEvents(const AllocatorPrivatePool* only);
  void EventIsOver(AllocatorBlock* block);

  void CollectGarbage();
  bool ReleaseLarge(const Request& request);
  bool ReleaseCached(uint64_t pool);
  void ReleaseBlocks(AllocatorPool& pool);
  void ReleaseSegment(AllocatorBlock* block);

  // Expandable segments.
  AllocatorBlock* Expand(const Request& request);
  AllocatorBlock* FindRoom(const Request& request);
  bool MapBlock(AllocatorBlock* block, uint64_t bytes);
  void UnmapBlock(AllocatorBlock* block);
  void InsertUnmapped(AllocatorBlock* block);

  const AllocatorRules rules_;
  const uint64_t device_bytes_;
  AllocatorDriver* const driver_;
  AllocatorListener* const listener_;
  AllocatorSettings settings_;
  bool limited_ = false;
  uint64_t limit_bytes_ = 0;

  // Before all that has nodes in it.
  std::pmr::unsynchronized_pool_resource nodes_;
  std::deque<AllocatorBlock> blocks_;
  std::vector<AllocatorBlock*> spare_blocks_;
  std::unique_ptr<AllocatorPool> small_;
  std::unique_ptr<AllocatorPool> large_;
  std::map<uint64_t, std::unique_ptr<AllocatorPrivatePool>> pools_;
  std::vector<std::unique_ptr<AllocatorPrivatePool>> dropped_pools_;
  std::vector<uint64_t> open_pools_;  // by time
  std::set<uint64_t> fallback_pools_;
  std::set<uint64_t> freeable_pools_;

  // By stream, those whose event was recorded first in front.
  std::map<uint64_t, std::deque<std::pair<uint64_t, AllocatorBlock*>>> waiting_;
  std::vector<AllocatorBlock*> held_back_;

  uint64_t total_bytes_ = 0;
  uint64_t allocated_bytes_ = 0;
  uint64_t active_bytes_ = 0;
  uint64_t reserved_bytes_ = 0;
  uint64_t retries_ = 0;
};

}  // namespace vramscope::query
