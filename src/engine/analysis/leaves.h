// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/replay/ledger.h"

namespace vramscope::engine {

// One disjoint piece of a device's memory at an instant, with everything that is known of it.
struct Leaf {
  trace::DeviceId device;
  trace::ProcessId process = trace::kNoProcess;  // kNoProcess: of no recorded process
  OwnerId owner;
  Part part = Part::kAllocated;
  trace::StringId api;
  trace::StackId stack;
  trace::StackId native;
  trace::ThreadId thread;
  uint64_t stream = 0;
  bool has_stream = false;
  bool is_block = false;
  bool has_lifetime = false;
  int64_t alloc_ns = 0;
  int64_t free_ns = kNever;
  uint64_t bytes = 0;
  uint64_t count = 0;                    // 0 for slack
  const std::string* trigger = nullptr;  // of driver-owned rows
  Category category = Category::kUnknown;
  Origin origin;  // of what was allocated, and of its rounding
  bool has_origin = false;
  uint32_t pool_names = 0;  // of the pool that it is in: a set of Names
};

// The stack that people mean by "where it comes from": of memory that autograd allocated for an
// operator of the forward, that operator's.
trace::StackId PlaceOf(const Leaf& leaf, StackFactsTable& facts);

// Which captures of a replayed ledger make up an instant: each device's own peak, each process's
// own end, or the one instant that was asked for.
enum class Moment : uint8_t { kPeak, kEnd, kRequested };

// Calls `sink` for every leaf of `device` at `moment`. Their bytes add up to what the ledger said
// then.
void ForEachLeaf(const Ledger& ledger,
                 trace::DeviceId device,
                 Moment moment,
                 const std::function<void(const Leaf&)>& sink);

// The capture that holds for a process's rows on a device; null where there is none.
const Capture* CaptureFor(const Ledger& ledger,
                          const DeviceState& device,
                          trace::ProcessId process,
                          Moment moment);

}  // namespace vramscope::engine
