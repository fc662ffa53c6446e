// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// Rows that outlast what they are of, until samples say that there is less. Measured on an H200:
// - A primary context that was reset, or released by its last user, keeps all that it has for the
//   next one, or for the end of the process; or gives all of it back, but for what the kernel
//   module has since cuInit. Both were seen. The allocations in it go.
// - What the kernel module had for a context goes with a checkpoint. It comes back with the next
//   call of the process, or not at all: the first sample behind that tells.
class LeftOver {
 public:
  LeftOver(size_t processes, Book* book) : book_(*book), parked_(processes), restored_(processes) {}

  void OnPrimaryEnd(uint32_t process, uint64_t context, const When& when) {
    parked_[process] = when;
    book_.KeepRowsOf(process, context);
  }
  bool IsParked(uint32_t process) const { return parked_[process].has_value(); }
  // A primary context is made. Whether that is the one that ended, with what it still has.
  bool TakeParked(uint32_t process) {
    return std::exchange(parked_[process], std::nullopt) && HasContext(process);
  }
  void OnRestore(uint32_t process, const When& when) { restored_[process] = when; }
  // No call is under way, and the device has so much less than the rows say. Both return what they
  // took from rows.
  int64_t TakeBackRestored(const When& sample, int64_t bytes);
  int64_t TakeBackParked(const When& sample, int64_t bytes);

 private:
  bool HasContext(uint32_t process) const;

  Book& book_;
  // By process: when its primary context ended last, until there is one again.
  std::vector<std::optional<When>> parked_;
  std::vector<std::optional<When>> restored_;  // by process: its return, until the next sample
};

}  // namespace vramscope::resolve::price
