// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "query/report.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

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
