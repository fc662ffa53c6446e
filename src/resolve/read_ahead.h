// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trace/trace.h"
#include "util/status.h"

namespace vramscope::resolve {

// Trace::ForEachEvent on a thread of its own: it reads ahead while `sink`, on the caller's thread,
// looks at the events before. What waits is bounded. What either of them throws is thrown here.
util::Status ForEachEventReadAhead(trace::Trace& trace, const trace::Trace::EventSink& sink);

}  // namespace vramscope::resolve
