// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/checkpoints.h"
#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// Rows that only samples tell of. Measured on an H200:
// - A primary context that was reset, or released by its last user, keeps all that it has for the
//   next one, or for the end of the process; or gives all of it back, but for what the kernel
//   module has since cuInit. Both were seen. The allocations in it go.
// - What the kernel module had for a context goes with a checkpoint, and does not come back.
// - While the memory of a process is moved, the driver has 4 MiB more for it, which are in NVML's
//   figure of the process, and the kernel module up to 3.25 MiB, which are not.
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
  // No call is under way, and the device has so much less than the rows say. Both return what they
  // took from rows.
  int64_t TakeBackRestored(const When& sample, int64_t bytes);
  int64_t TakeBackParked(const When& sample, int64_t bytes);
  // No call is under way, or none but those that move memory of one process, and the device has
  // `bytes` more than the rows say. Returns what of that is due to the move.
  int64_t OnMoving(const When& sample, int64_t bytes, const Checkpoints& checkpoints);

 private:
  bool HasContext(uint32_t process) const;

  // The one whose memory moves then; kNone where it is none, or several.
  uint32_t MovedAt(const When& sample) const;
  void Set(uint32_t* row, uint32_t process, const When& when, int64_t bytes);

  const DeviceInput& input_;
  Book& book_;
  uint32_t moved_ = kNone;  // whose memory moves, or did last
  uint32_t moving_row_ = kNone;
  uint32_t moving_rm_row_ = kNone;
  // By process: when its primary context ended last, until there is one again.
  std::vector<std::optional<When>> parked_;
  std::vector<std::optional<When>> restored_;  // by process: its return, until the next sample
};

}  // namespace vramscope::resolve::price
