// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// The number of threads that pays for a question over `rows`; at least 1.
size_t WorkersFor(uint64_t rows);

// Reads the columns `wanted` of each frame and visits it, on `workers` threads at once; `worker`
// says on which. In no order. Ends early at the first error, which it returns.
util::Status ForEachFrame(
    const tables::Recording& recording,
    const std::vector<size_t>& frames,
    uint32_t wanted,
    size_t workers,
    const std::function<void(size_t worker, const tables::AllocationFrame& frame)>& visit);

}  // namespace vramscope::query
