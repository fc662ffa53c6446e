// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "resolve/ledger/base.h"
#include "resolve/ledger/records.h"
#include "util/containers/flat_map.h"

namespace vramscope::resolve {

// Memory that allocators cut blocks out of: what it holds, and what of it is in live blocks.
//
//   held  |##############################|   from the driver: one allocation, or mappings
//   live     |######|      |####|            in blocks; the rest is free, of nobody's
//
// DriverObjects and Pools make segments and end them, Blocks moves bytes in them. Each change tells
// the account by how much the device's sum moved, so the sum is never counted again. Offline
// questions have the same rule in query/core/ledger_state.h.
class Segments {
 public:
  explicit Segments(LedgerBase& base) : base_(base) {}

  uint32_t Add(SegmentKind kind, uint32_t account, uint64_t begin, uint64_t size);
  Segment& operator[](uint32_t segment) { return segments_[segment]; }
  tables::SegmentId RowOf(uint32_t segment) const { return segments_[segment].row; }

  // Its memory grew or shrank; so did what stands in allocations that are cut out of it.
  void Change(Segment& segment, int64_t held, int64_t live, int64_t count) {
    const int64_t free_before = FreeBytes(segment);
    segment.held += static_cast<uint64_t>(held);
    segment.live_bytes += static_cast<uint64_t>(live);
    segment.live_count += static_cast<uint64_t>(count);
    base_.Move(segment.account, FreeBytes(segment) - free_before);
  }
  // A block of it came (`count` 1) or went (-1), or memory below it did (0), with bytes that stand
  // nowhere else.
  void MoveBlock(Segment& segment, int64_t bytes, int64_t count) {
    const int64_t free_before = FreeBytes(segment);
    segment.live_bytes += static_cast<uint64_t>(bytes);
    segment.live_count += static_cast<uint64_t>(count);
    base_.Move(segment.account, bytes + FreeBytes(segment) - free_before);
  }
  // Device memory is mapped into a reservation, or no longer.
  void Back(uint32_t segment, uint64_t begin, uint64_t end);
  void Unback(uint32_t segment, uint64_t begin, uint64_t end);
  // It turns out to be mapped memory, which is gone now.
  void BecomeReservation(uint32_t segment);
  // How many of a block's bytes have device memory below them.
  uint64_t BackedBytes(const Segment& segment, uint64_t begin, uint64_t size) const {
    if (segment.zombie)
      return 0;
    return segment.backed == nullptr ? size : segment.backed->Count(begin, size);
  }
  // Where memory came or went below blocks, since this was last asked.
  struct Rebacked {
    uint32_t segment = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  bool HasRebacked() const { return !rebacked_.empty(); }
  std::vector<Rebacked> TakeRebacked() { return std::exchange(rebacked_, {}); }

  // What it holds is known by readings from here on.
  void CountHeld(Segment& segment);
  void SetHeld(Segment& segment, uint64_t bytes);
  void EndCounted(uint32_t account);

  // Its free bytes stand under that site, with what makes them free bytes filled in.
  void Describe(Segment& segment, SiteKey key);
  // Its memory is gone. Blocks that were never freed keep the record, without memory.
  void Release(uint32_t segment);
  // The last of those blocks is gone too.
  void Forget(uint32_t segment) { segments_.Remove(segment); }
  // What PyTorch holds of an account in segments that are known, asleep or not.
  uint64_t PyTorchBytes(uint32_t account) const;

 private:
  static int64_t FreeBytes(const Segment& segment) {
    return static_cast<int64_t>(segment.free_bytes());
  }

  LedgerBase& base_;
  util::Slab<Segment> segments_;
  std::vector<Rebacked> rebacked_;
};

}  // namespace vramscope::resolve
