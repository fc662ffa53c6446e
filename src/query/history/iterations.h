// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// What MakeIterations() has without the parameters. Empty if the recording has no iterations.
util::Result<std::vector<Iteration>> FindIterations(const tables::Recording& recording);

}  // namespace vramscope::query
