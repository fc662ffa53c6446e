// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// Of so many each band takes 8 MB, in each thread that fills them.
inline constexpr size_t kMaxBuckets = 1'000'000;
// An error for more buckets than that, and for none: the one that all the functions give.
util::Status CheckBuckets(uint64_t buckets);

// As MakeTimelines(), with a band for each value of a dimension. An error for one that says
// something of single allocations, such as their lifetimes.
util::Result<std::vector<Timeline>> MakeTimelinesBy(const tables::Recording& recording,
                                                    size_t buckets,
                                                    Dimension by);

// As MakeTimelines(), of what some processes have, and of the devices on which they have anything.
using HasProcess = std::function<bool(tables::ProcessId)>;
util::Result<std::vector<Timeline>> MakeTimelinesOf(const tables::Recording& recording,
                                                    size_t buckets,
                                                    const HasProcess& has);

}  // namespace vramscope::query
