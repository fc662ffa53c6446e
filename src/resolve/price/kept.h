// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// What the kernel module keeps for a process from cuInit to its end on each GPU that the process
// sees, in no figure of the process (3.25 MiB on an H200). While the process has a context there,
// the context's price includes it. Seen alone it is where the process has none: before its first
// one, behind its last one, and on the GPUs that it does not use.
class Kept {
 public:
  Kept(const DeviceInput& input, Book* book)
      : input_(input), book_(*book), states_(input.processes.size()) {}

  // From cuInit, or the end of its last context, on.
  void OnNoContext(uint32_t process, const When& when) { states_[process].idle = when; }
  void OnContext(uint32_t process) { states_[process].idle.reset(); }
  void OnEnd(uint32_t process) { states_[process] = {}; }
  // Whether the row stays when the contexts of its process go.
  bool Has(uint32_t row) const;
  // No call is under way, and the device has `bytes` more than the rows say. Returns what that
  // changed.
  std::vector<StepRef> OnQuiet(const When& sample, int64_t bytes);

 private:
  struct State {
    std::optional<When> idle;  // since then without a context
    uint32_t row = kNone;
  };

  const DeviceInput& input_;
  Book& book_;
  std::vector<State> states_;
};

}  // namespace vramscope::resolve::price
