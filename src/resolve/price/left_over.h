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
//   call of the process, or not at all. The first sample behind that call tells.
// - The kernel module has 3.25 MiB for the GPU as long as any process uses it, and more for each
//   context (an H100 has the same). The end of a process takes only what its contexts had.
class LeftOver {
 public:
  LeftOver(const DeviceInput& input, Book* book)
      : input_(input),
        book_(*book),
        parked_(input.processes.size()),
        restored_(input.processes.size()) {}

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
  // Before its rows end.
  void OnEnd(uint32_t process);
  // No call is under way but ends, and the device has so much more than the rows say. Returns the
  // step of what an end has left.
  std::optional<StepRef> Leave(const When& sample, int64_t bytes);
  // No call is under way, and the device has so much less than the rows say. Both return what they
  // took from rows.
  int64_t TakeBackRestored(const When& sample, int64_t bytes);
  int64_t TakeBackParked(const When& sample, int64_t bytes);

 private:
  bool HasContext(uint32_t process) const;

  const DeviceInput& input_;
  Book& book_;
  std::optional<When> ended_;  // when a process did, until the next sample
  int64_t ended_bytes_ = 0;    // that the kernel module had for it
  // By process: when its primary context ended last, until there is one again.
  std::vector<std::optional<When>> parked_;
  std::vector<std::optional<When>> restored_;  // by process: its return, until the next sample
};

}  // namespace vramscope::resolve::price
