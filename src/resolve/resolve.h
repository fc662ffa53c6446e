// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "tables/recording.h"
#include "trace/trace.h"
#include "util/status.h"

namespace vramscope::resolve {

// Makes tables of the events of a recording: the only place where anything is inferred. Allocations
// go to `sink` as they end; everything else is returned, but for `peaks`, which are a question to
// the rest. `progress` is called with the share done, 0 to 1; may be empty. Any trace will do:
// what makes no sense in it becomes a row of `losses` or `violations`.
util::Result<tables::Tables> Resolve(trace::Trace& trace,
                                     tables::AllocationSink& sink,
                                     const std::function<void(double)>& progress = {});

}  // namespace vramscope::resolve
