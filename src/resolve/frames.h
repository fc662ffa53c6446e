// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trace/trace.h"

namespace vramscope::resolve {

// "train.py:42 in forward"; a native frame without a source line is "name (libfoo.so)".
std::string DescribeFrame(const trace::Trace& trace, trace::FrameId frame);

// The user's own code: Python files outside installed packages and the standard library; native
// frames of the program's own binaries.
bool IsUserFrame(const trace::Trace& trace, const trace::Frame& frame);

// Which frames of a stack people mean by "the line that allocated". Remembers its answer by stack,
// since a trace asks about the same stacks again and again.
class UserFrames {
 public:
  explicit UserFrames(const trace::Trace& trace) : trace_(trace) {}

  // The innermost frame that is the user's own code; the innermost frame of all where there is
  // none; frame 0 for the empty stack.
  trace::FrameId Innermost(trace::StackId stack);

 private:
  const trace::Trace& trace_;
  std::vector<uint32_t> known_;  // by stack: frame + 1, 0: not asked yet
};

}  // namespace vramscope::resolve
