// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "tables/recording.h"
#include "trace/trace.h"
#include "util/status.h"

namespace vramscope::resolve {

// Makes tables from the events of a recording. Only this stage infers anything. Allocations go to
// `sink` as they end. Returns all other tables except `peaks`, which are queried from the rest.
// `progress` may be empty; it is called with the share done, 0 to 1. Any trace is valid input:
// inconsistent events become rows of `losses` or `violations`.
util::Result<tables::Tables> Resolve(trace::Trace& trace,
                                     tables::AllocationSink& sink,
                                     const std::function<void(double)>& progress = {});

}  // namespace vramscope::resolve
