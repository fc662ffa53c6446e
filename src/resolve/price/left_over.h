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

// Rows that outlast their cause until samples show less. Measured on an H200:
// - A primary context that was reset, or released by its last user, frees its allocations. It keeps
//   the rest for the next one or until the process ends; or it frees all but the kernel module's
//   memory since cuInit. Both were seen.
// - A checkpoint frees the kernel module's memory for a context. It comes back with the next call
//   of the process, or not at all. The first sample after that call shows which.
// - The kernel module has 3.25 MiB for the GPU while any process uses it, and more for each context
//   (the same on an H100). The end of a process frees only the memory of its contexts.
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
  // A primary context is made. Whether it takes over the memory of the one that ended.
  bool TakeParked(uint32_t process) {
    return std::exchange(parked_[process], std::nullopt) && HasContext(process);
  }
  void OnRestore(uint32_t process, const When& when) { restored_[process] = when; }
  // Call before its rows end.
  void OnEnd(uint32_t process);
  // At a sample without calls under way except ends, the device has `bytes` more than the rows.
  // Returns the step of the memory that an end left.
  std::optional<StepRef> Leave(const When& sample, int64_t bytes);
  // At a sample without calls under way, the device has `bytes` less than the rows. Both return the
  // bytes that they took from rows.
  int64_t TakeBackRestored(const When& sample, int64_t bytes);
  int64_t TakeBackParked(const When& sample, int64_t bytes);

 private:
  bool HasContext(uint32_t process) const;

  const DeviceInput& input_;
  Book& book_;
  std::optional<When> ended_;  // when a process ended, until the next sample
  int64_t ended_bytes_ = 0;    // the kernel module's bytes for it
  // By process: when its primary context ended, until the next one is made.
  std::vector<std::optional<When>> parked_;
  std::vector<std::optional<When>>
      restored_;  // by process: when it was restored, until the next sample
};

// The kernel module's memory for a process, from cuInit to its end, on each GPU that the process
// sees (3.25 MiB on an H200). No process figure includes it. While the process has a context on the
// GPU, it is part of the context's price. It has a row of its own before the first context, after
// the last one, and on GPUs that the process does not use.
class Kept {
 public:
  Kept(const DeviceInput& input, Book* book)
      : input_(input), book_(*book), states_(input.processes.size()) {}

  // Called at cuInit and at the end of its last context.
  void OnNoContext(uint32_t process, const When& when) { states_[process].idle = when; }
  void OnContext(uint32_t process) { states_[process].idle.reset(); }
  void OnEnd(uint32_t process) { states_[process] = {}; }
  // Whether the row stays when its process's contexts end.
  bool Has(uint32_t row) const;
  // At a sample without calls under way, the device has `bytes` more than the rows. Returns the
  // changed steps.
  std::vector<StepRef> OnQuiet(const When& sample, int64_t bytes);

 private:
  struct State {
    std::optional<When> idle;  // without a context since then
    uint32_t row = kNone;
  };

  const DeviceInput& input_;
  Book& book_;
  std::vector<State> states_;
};

}  // namespace vramscope::resolve::price
