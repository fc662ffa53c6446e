// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// In the order of time. Those that were not served were refused for good, whether or not the
// program went on.
util::Result<std::vector<Refusal>> FindRefusals(const tables::Recording& recording);

}  // namespace vramscope::query
