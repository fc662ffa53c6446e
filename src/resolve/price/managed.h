// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// Which bytes of managed allocations are on the device, by the bytes that the UVM driver has in
// use. It takes chunks of 2 MiB where pages are touched, and 64 MiB to spare.
class Residency {
 public:
  struct Change {
    uint32_t site;
    int64_t bytes;
  };

  explicit Residency(const DeviceInput& input) : input_(input), resident_(Allocations().size()) {}

  void Add(uint32_t allocation);
  // Returns what was resident of it.
  int64_t Remove(uint32_t allocation);
  // The driver has so much more, or less, in use. What of it is whose.
  std::vector<Change> Use(int64_t bytes);

  size_t live_count() const { return live_.size(); }
  int64_t used_bytes() const { return used_bytes_; }
  int64_t live_bytes() const { return live_bytes_; }
  int64_t resident_bytes() const { return resident_bytes_; }
  // Of the chunks that they are in: each allocation has its own.
  int64_t chunk_bytes() const { return chunk_bytes_; }

 private:
  const std::vector<ManagedAllocation>& Allocations() const { return input_.managed_allocations; }
  void Move(uint32_t allocation, int64_t bytes, std::vector<Change>* changes);

  const DeviceInput& input_;
  std::vector<int64_t> resident_;  // by allocation
  std::set<uint32_t> live_;        // the oldest first
  std::set<uint32_t> partial_;     // of them, those that are not wholly resident
  int64_t used_bytes_ = 0;
  int64_t live_bytes_ = 0;
  int64_t resident_bytes_ = 0;
  int64_t chunk_bytes_ = 0;
};

// What the UVM driver has in use on the device, in no figure of a process. Pages move whenever a
// kernel touches them, and no call says so: what figures of the device show while managed memory
// is live, and no call explains, is the UVM driver's. It ends with the last process that has some.
class Managed {
 public:
  Managed(const DeviceInput& input, Book* book);

  bool IsUsed() const { return active_processes_ > 0; }
  // The row of all that it has. Split() takes from it what is resident.
  uint32_t row() const { return row_; }
  // Of so many bytes that came while kernels may have touched pages, those that likely are for
  // pages.
  int64_t LikelyOf(int64_t bytes) const;
  // Since the last figure so many bytes were taken to go with what was freed.
  int64_t freed_bytes() const { return freed_bytes_; }
  // What has been freed since this was asked last and was resident in no row.
  struct Unpaid {
    uint32_t process = kNone;
    int64_t bytes = 0;
  };
  Unpaid TakeUnpaid();
  // An allocation was made or freed. Returns by how much the rows grew.
  int64_t OnMove(const ManagedMove& move);
  // The device has `bytes` more than the rows say. Returns what of it is the UVM driver's.
  int64_t OnFigure(const When& figure, int64_t bytes);
  // The same of calls between two figures.
  int64_t OnCalls(const When& calls, int64_t bytes);
  // The same of calls that move pages and nothing else.
  int64_t OnMovedPages(const When& calls, int64_t bytes) { return Change(calls, bytes); }
  // What it has at that time, and never less later.
  int64_t LowestFrom(int64_t time_ns) const;
  // Of what was taken to be its own so much more, or less, is.
  void Correct(const When& when, int64_t bytes) { Change(when, bytes); }
  int64_t used_bytes() const { return residency_.used_bytes(); }
  // When the first managed memory was allocated; `kNever` without any.
  int64_t began_ns() const {
    return input_.managed_moves.empty() ? kNever : input_.managed_moves.front().when.time_ns;
  }
  // How much more it can have, by what is allocated.
  int64_t RoomBytes() const;
  int64_t OnEnd(uint32_t process, const When& end);
  // Once every price is known: rows of what is resident, by who allocated it.
  void Split();

 private:
  int64_t Change(const When& when, int64_t bytes);
  // What a process has at its end goes in the time in which the process may have ended.
  const When& WhenOf(const ManagedMove& move) const;

  const DeviceInput& input_;
  Book& book_;
  uint32_t row_ = kNone;
  Residency residency_;
  std::vector<bool> is_active_;  // by process: it allocated managed memory
  size_t active_processes_ = 0;
  Unpaid unpaid_;
  int64_t freed_bytes_ = 0;  // since the last figure, which may say that the driver keeps them
  int64_t last_figure_ns_ = INT64_MIN;
};

}  // namespace vramscope::resolve::price
