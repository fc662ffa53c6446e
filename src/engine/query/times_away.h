// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/query/report.h"

namespace vramscope::engine {

// A time in which a process had no device memory: the driver kept it in host memory.
struct TimeAway {
  trace::ProcessId process;
  int64_t from_ns = 0;
  int64_t to_ns = INT64_MAX;  // INT64_MAX: to the end of the recording
};

// By process and time. None of an Analysis that does not come from Analysis::Create().
std::vector<TimeAway> TimesAway(const Analysis& analysis);

}  // namespace vramscope::engine
