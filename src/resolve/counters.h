// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "resolve/owners.h"
#include "resolve/parts.h"
#include "resolve/records.h"
#include "tables/rows.h"
#include "trace/event.h"

namespace vramscope::resolve {

// A row whose bytes change by readings and not by allocations: driver-owned memory, what pools
// hold, other processes. Few.
struct Counter {
  trace::DeviceId device = trace::kNoDevice;
  uint32_t space = kNoIndex;  // kNoIndex: of no recorded process
  tables::SegmentId segment;  // not 0: what this segment holds; the rest but `bytes` is its
  OwnerId owner;
  Part part = Part::kOtherDriver;
  tables::Estimated estimated = tables::Estimated::kExact;
  std::string trigger;  // "cuLaunchKernel name": who caused it
  trace::StringId api;
  trace::StackId stack;
  trace::StackId native;
  trace::ThreadId thread;
  uint64_t context = 0;
  int64_t alloc_ns = 0;
  int64_t bytes = 0;  // the sum of its steps
};

struct CounterStep {
  uint32_t counter = 0;
  int64_t time_ns = 0;
  int64_t bytes = 0;
};

class Counters {
 public:
  uint32_t Add(Counter counter) {
    counters_.push_back(std::move(counter));
    return static_cast<uint32_t>(counters_.size() - 1);
  }
  void Step(uint32_t counter, int64_t bytes, int64_t time_ns) {
    if (bytes == 0)
      return;
    counters_[counter].bytes += bytes;
    steps_.push_back({counter, time_ns, bytes});
  }
  Counter& operator[](uint32_t counter) { return counters_[counter]; }
  const Counter& operator[](uint32_t counter) const { return counters_[counter]; }
  const std::vector<Counter>& all() const { return counters_; }
  const std::vector<CounterStep>& steps() const { return steps_; }  // those of a counter by time

 private:
  std::vector<Counter> counters_;
  std::vector<CounterStep> steps_;
};

}  // namespace vramscope::resolve
