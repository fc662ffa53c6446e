// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace.h"

// Frames in the short forms that tables have room for.
namespace vramscope::report {

// The frames of a stack, innermost first, at most `limit` of them.
std::vector<trace::FrameId> StackFrames(const trace::Trace& trace,
                                        trace::StackId stack,
                                        size_t limit = static_cast<size_t>(-1));

// True for code that people wrote themselves as far as the path tells: not the standard library,
// not an installed package, not a system library.
bool IsUserFrame(const trace::Trace& trace, trace::FrameId frame);

// "model.py:42 forward".
std::string ShortFrame(const trace::Trace& trace, trace::FrameId frame);

// The user frames that called the innermost user frame, nearest first, at most `limit`.
std::vector<std::string> Callers(const trace::Trace& trace, trace::StackId stack, size_t limit);

std::string_view Basename(std::string_view path);

}  // namespace vramscope::report
