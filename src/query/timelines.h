// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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

}  // namespace vramscope::query
