// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// By device; none of a run in which nothing was served from the host.
util::Result<std::vector<Overflow>> FindOverflow(const tables::Recording& recording);

}  // namespace vramscope::query
