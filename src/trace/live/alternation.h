// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trace/live/address_set.h"
#include "trace/trace.h"

namespace vramscope::trace {

// Last stage of a live read. Two threads that use one address in turn can write stamps that are
// equal, or that the skew between two cores reverses: a free before its allocation, an allocation
// of an address still live. Allocations and frees at one address must alternate. So such a pair is
// swapped if its events are adjacent in time and from two threads. All other cases are passed on
// unchanged.
//
// Gathers events into batches for the sink on the way.
class AlternationRepair {
 public:
  explicit AlternationRepair(const Trace::EventSink& sink);
  // Events in time order.
  void Push(const Event& event) {
    out_.push_back(event);
    if (out_.size() == kBatch + kLookAhead)
      Emit(kBatch);
  }
  void Finish();

 private:
  static constexpr size_t kBatch = 2048;
  static constexpr size_t kLookAhead = 256;

  void Emit(size_t count);
  void Check(size_t at);
  // Index of the event that belongs before or after `at` by alternation; 0 if there is none.
  size_t FindCounterpart(size_t at) const;

  const Trace::EventSink& sink_;
  std::vector<Event> out_;
  std::vector<Event> look_ahead_;
  std::vector<AddressSet> live_;  // by process
};

}  // namespace vramscope::trace
