// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "query/change_stream.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// The table `peaks`: the highest instant of each device that anything was ever on. Whoever resolves
// a recording fills the table with it, once, before it is written.
util::Result<std::vector<tables::PeakRow>> FindPeaks(const tables::Recording& recording);

// The same within a span of each device, by DeviceId; where there is nothing, its first instant.
util::Result<std::vector<tables::PeakRow>> FindPeaks(const tables::Recording& recording,
                                                     const std::vector<TimeSpan>& spans);

}  // namespace vramscope::query
