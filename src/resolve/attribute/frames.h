// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trace/trace.h"

namespace vramscope::resolve {

// The user's own code: Python files outside installed packages and the standard library; native
// frames of the program's own binaries, but for what vramscope/annotate.h puts into them.
bool IsUserFrame(const trace::Trace& trace, const tables::FrameRow& frame);

}  // namespace vramscope::resolve
