// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trace/trace.h"
#include "util/status.h"

namespace vramscope::resolve {

// Runs Trace::ForEachEvent on a second thread, which reads ahead while `sink` processes earlier
// events on the caller's thread. The queue is bounded. Exceptions of either are rethrown here.
util::Status ForEachEventReadAhead(trace::Trace& trace, const trace::Trace::EventSink& sink);

}  // namespace vramscope::resolve
