// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "query/dimensions/frames.h"

// Frames and stacks in the forms that writers have room for.
namespace vramscope::output {

// "model.py:42 forward".
std::string ShortFrame(const tables::Recording& recording, tables::FrameId frame);

// The user frames that called the innermost user frame, nearest first, at most `limit`.
std::vector<std::string> Callers(const tables::Recording& recording,
                                 tables::StackId stack,
                                 size_t limit);

std::string Joined(const std::vector<std::string>& items, std::string_view separator);

}  // namespace vramscope::output
