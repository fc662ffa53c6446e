// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// Of processes with as much free as is worth a word, the most first, where an earlier segment could
// have served the request for the newest. `live` is of that instant.
util::Result<std::vector<CachedMemory>> FindCached(const tables::Recording& recording,
                                                   const Instants& at,
                                                   const LiveSet& live);

}  // namespace vramscope::query
