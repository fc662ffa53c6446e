// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "resolve/ledger/base.h"
#include "resolve/ledger/records.h"
#include "util/containers/flat_map.h"

namespace vramscope::resolve {

// Memory that allocators divide into blocks: how much it holds, and how much is in live blocks.
//
//   held  |##############################|   from the driver: one allocation, or mappings
//   live     |######|      |####|            in blocks; the rest is free
//
// DriverObjects and Pools create and end segments; Blocks changes their live bytes. Each change
// reports to the account how much the device's sum changed, so the sum is never recomputed. Queries
// have the same rule in query/core/ledger_state.h.
class Segments {
 public:
  explicit Segments(LedgerBase& base) : base_(base) {}

  uint32_t Add(SegmentKind kind, uint32_t account, uint64_t begin, uint64_t size);
  Segment& operator[](uint32_t segment) { return segments_[segment]; }
  tables::SegmentId RowOf(uint32_t segment) const { return segments_[segment].row; }

  // Its held memory changed, and the bytes and number of allocations in it.
  void Change(Segment& segment, int64_t held, int64_t live, int64_t count) {
    const int64_t free_before = FreeBytes(segment);
    segment.held += static_cast<uint64_t>(held);
    segment.live_bytes += static_cast<uint64_t>(live);
    segment.live_count += static_cast<uint64_t>(count);
    base_.Move(segment.account, FreeBytes(segment) - free_before);
  }
  // A block of it was allocated (`count` 1) or freed (-1), or memory below a block changed (0). The
  // bytes are counted nowhere else.
  void MoveBlock(Segment& segment, int64_t bytes, int64_t count) {
    const int64_t free_before = FreeBytes(segment);
    segment.live_bytes += static_cast<uint64_t>(bytes);
    segment.live_count += static_cast<uint64_t>(count);
    base_.Move(segment.account, bytes + FreeBytes(segment) - free_before);
  }
  // Device memory was mapped into a reservation, or unmapped.
  void Back(uint32_t segment, uint64_t begin, uint64_t end);
  void Unback(uint32_t segment, uint64_t begin, uint64_t end);
  // It turns out to be mapped memory, which is unmapped now.
  void BecomeReservation(uint32_t segment);
  // How many of a block's bytes have device memory.
  uint64_t BackedBytes(const Segment& segment, uint64_t begin, uint64_t size) const {
    if (segment.zombie)
      return 0;
    return segment.backed == nullptr || segment.by_size ? size : segment.backed->Count(begin, size);
  }
  // A range whose memory below blocks changed since TakeRebacked().
  struct Rebacked {
    uint32_t segment = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  bool HasRebacked() const { return !rebacked_.empty(); }
  std::vector<Rebacked> TakeRebacked() { return std::exchange(rebacked_, {}); }

  // From now on readings give what it holds.
  void CountHeld(Segment& segment);
  void SetHeld(Segment& segment, uint64_t bytes);
  void EndCounted(uint32_t account);

  // Sets the site of its free bytes to `key`, completed with their part and category.
  void Describe(Segment& segment, SiteKey key);
  // Its memory is freed. Blocks that were never freed keep the record, without memory.
  void Release(uint32_t segment);
  // The last of those blocks was freed.
  void Forget(uint32_t segment) { segments_.Remove(segment); }
  // Bytes that PyTorch holds of an account in known segments, mapped or not.
  uint64_t PyTorchBytes(uint32_t account) const;

 private:
  static int64_t FreeBytes(const Segment& segment) {
    return static_cast<int64_t>(segment.free_bytes());
  }

  LedgerBase& base_;
  util::Slab<Segment> segments_;
  std::vector<Rebacked> rebacked_;
};

// Small driver allocations share 2 MiB pages. A page counts once while it has any live allocation.
// All such pages of an account are one segment.
class Slabs {
 public:
  explicit Slabs(LedgerBase& base) : base_(base) {}

  void Add(const DriverObject& object) { Change(object, true); }
  void Remove(const DriverObject& object) { Change(object, false); }
  // From now on the object is a segment of its own, and its bytes count there.
  void Cut(const DriverObject& object);
  tables::SegmentId RowOf(uint32_t account);

 private:
  struct OfAccount {
    util::FlatMap pages;  // page -> number of live allocations
    uint64_t bytes = 0;
    uint64_t cut_bytes = 0;  // of these, in segments
    int64_t slack_bytes = 0;
    tables::SegmentId row;
    uint32_t counter = kNoIndex;  // bytes held, without cut_bytes
  };

  void Change(const DriverObject& object, bool add);
  void CountHeld(uint32_t account);

  LedgerBase& base_;
  PerAccount<OfAccount> accounts_;
};

}  // namespace vramscope::resolve
