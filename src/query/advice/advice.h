// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// What would lower the peak, and by how many bytes: `report --advice` and `--budget`.
//
//   allocations of one process on one device --+--> rules: which would live shorter, or not at all
//                                              |                        |
//                                              +--> total over time <---+--> its new highest point
//
// The process and the device are those with most bytes (FindLargestAccount). A rule only names
// allocations that this recording has, so what a program already does is never advised, and what
// lowers no peak saves 0 bytes and is left out. Savings are of allocated bytes: what the caching
// allocator and the driver keep beside them is not predicted here.
//
// An error where the recording has no allocations. `budget_bytes`: of the device, if asked for.
util::Result<Savings> FindSavings(const tables::Recording& recording,
                                  std::optional<uint64_t> budget_bytes);

}  // namespace vramscope::query
