// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/model/frames.h"
#include "engine/query/report.h"
#include "engine/replay/ledger.h"

namespace vramscope::engine {

// The iterations of a trace that `first` has replayed to its end; one pass over the events.
util::Result<Iterations> FindIterations(trace::Trace& trace, const Ledger& first);

// The same for what grows and what nobody freed; without iterations no pass.
util::Result<Leaks> FindLeaks(trace::Trace& trace,
                              const Ledger& first,
                              UserFrames& frames,
                              const LeakOptions& options);

}  // namespace vramscope::engine
