// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// Divides the UVM driver's memory among managed allocations. The driver allocates chunks of 2 MiB
// for touched pages, and 64 MiB in reserve.
class Residency {
 public:
  struct Change {
    uint32_t site;
    int64_t bytes;
  };

  explicit Residency(const DeviceInput& input) : input_(input), resident_(Allocations().size()) {}

  void Add(uint32_t allocation);
  // Returns its resident bytes.
  int64_t Remove(uint32_t allocation);
  // The driver's memory changed by that much. Divides the change among allocations.
  std::vector<Change> Use(int64_t bytes);

  size_t live_count() const { return live_.size(); }
  int64_t used_bytes() const { return used_bytes_; }
  int64_t live_bytes() const { return live_bytes_; }
  int64_t resident_bytes() const { return resident_bytes_; }
  // Bytes of their chunks; no two allocations share one.
  int64_t chunk_bytes() const { return chunk_bytes_; }

 private:
  const std::vector<ManagedAllocation>& Allocations() const { return input_.managed_allocations; }
  void Move(uint32_t allocation, int64_t bytes, std::vector<Change>* changes);

  const DeviceInput& input_;
  std::vector<int64_t> resident_;  // by allocation
  std::set<uint32_t> live_;        // the oldest first
  std::set<uint32_t> partial_;     // of these, partly resident ones
  int64_t used_bytes_ = 0;
  int64_t live_bytes_ = 0;
  int64_t resident_bytes_ = 0;
  int64_t chunk_bytes_ = 0;
};

// The UVM driver's memory on the device, which no process figure includes. Kernels move pages
// without a call. So unexplained changes of the device's figure while managed memory is live count
// as the UVM driver's. It ends with the last process that has managed memory.
class Managed {
 public:
  Managed(const DeviceInput& input, Book* book);

  bool IsUsed() const { return active_processes_ > 0; }
  // The row of all its memory. Split() moves resident bytes to other rows.
  uint32_t row() const { return row_; }
  // How many of `bytes`, which appeared while kernels may have touched pages, are likely pages.
  int64_t LikelyOf(int64_t bytes) const;
  // Bytes assumed freed with managed memory since the last figure.
  int64_t freed_bytes() const { return freed_bytes_; }
  // Bytes freed since the last call of this that were resident in no row.
  struct Unpaid {
    uint32_t process = kNone;
    int64_t bytes = 0;
  };
  Unpaid TakeUnpaid();
  // Managed memory was allocated or freed. Returns the growth of the rows.
  int64_t OnMove(const ManagedMove& move);
  // The device has `bytes` more than the rows. Returns the UVM driver's part.
  int64_t OnFigure(const When& figure, int64_t bytes);
  // The same for calls between two figures.
  int64_t OnCalls(const When& calls, int64_t bytes);
  // The same for calls that only move pages.
  int64_t OnMovedPages(const When& calls, int64_t bytes) { return Change(calls, bytes); }
  // The lowest bytes of the row from that time on.
  int64_t LowestFrom(int64_t time_ns) const;
  // Corrects the bytes that were assumed to be the UVM driver's.
  void Correct(const When& when, int64_t bytes) { Change(when, bytes); }
  int64_t used_bytes() const { return residency_.used_bytes(); }
  // When the first managed memory was allocated; `kNever` without any.
  int64_t began_ns() const {
    return input_.managed_moves.empty() ? kNever : input_.managed_moves.front().when.time_ns;
  }
  // How much its memory can still grow, by the allocated bytes.
  int64_t RoomBytes() const;
  int64_t OnEnd(uint32_t process, const When& end);
  // After all prices: makes rows of resident memory, by call site.
  void Split();

 private:
  int64_t Change(const When& when, int64_t bytes);
  // Frees a process's memory in the time in which the process may have ended.
  const When& WhenOf(const ManagedMove& move) const;

  const DeviceInput& input_;
  Book& book_;
  uint32_t row_ = kNone;
  Residency residency_;
  std::vector<bool> is_active_;  // by process: it allocated managed memory
  size_t active_processes_ = 0;
  Unpaid unpaid_;
  int64_t freed_bytes_ = 0;  // since the last figure; the driver may keep them
  int64_t last_figure_ns_ = INT64_MIN;
};

}  // namespace vramscope::resolve::price
