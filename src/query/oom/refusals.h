// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// A request for device memory that was refused. A caching allocator asks the driver again once it
// has given back what it had cached, and says itself when it gives up: that is one refusal, not
// three.
struct Refusal {
  tables::AccountId account;
  tables::ThreadId thread;
  tables::StackId stack, native_stack;
  tables::StringId api;          // the driver's entry point; empty: no call of the driver was seen
  int64_t time_ns = 0;           // of the last answer
  uint64_t requested_bytes = 0;  // by whoever wanted memory
  uint64_t asked_driver_bytes = 0;  // for it: an allocator asks for whole segments
  uint32_t attempts = 0;
  std::optional<uint64_t> reported_free_bytes;  // on the device, as an imported log says
  bool by_allocator = false;                    // a caching allocator gave up
  bool served = false;  // what the thread got next from the driver was as large
};

// In the order of time. Those that were not served were refused for good, whether or not the
// program went on.
util::Result<std::vector<Refusal>> FindRefusals(const tables::Recording& recording);

}  // namespace vramscope::query
