// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tables/recording.h"

// Frames as people read them. What is the user's own code is decided here and nowhere else.
namespace vramscope::query {

// The frames of a stack, innermost first, at most `limit` of them.
std::vector<tables::FrameId> StackFrames(const tables::Recording& recording,
                                         tables::StackId stack,
                                         size_t limit = static_cast<size_t>(-1));

// The user's own code: what resolve did not take for a library's, and the files of the packages
// `own` (--own), wherever they are installed.
bool IsUserFrame(const tables::Recording& recording,
                 tables::FrameId frame,
                 const std::vector<std::string>& own = {});

// The frame that people mean by "the line": the innermost that is the user's own code, where there
// is none the innermost of all; frame 0 for the empty stack.
tables::FrameId UserFrame(const tables::Recording& recording,
                          tables::StackId stack,
                          const std::vector<std::string>& own = {});

// The same for many stacks: remembers its answers. Not to be shared between threads.
class UserFrames {
 public:
  explicit UserFrames(const tables::Recording& recording, std::vector<std::string> own = {})
      : recording_(recording), own_(std::move(own)) {}
  tables::FrameId Of(tables::StackId stack);

 private:
  const tables::Recording& recording_;
  std::vector<std::string> own_;
  std::vector<uint32_t> known_;  // by stack: frame + 1; 0: not asked yet
};

// "train.py:42 in forward"; a native frame without a source line is "name (libfoo.so)".
std::string FormatFrame(const tables::Recording& recording, tables::FrameId frame);

// Text of the frame's line, where the recording has it.
std::string_view SourceOf(const tables::Recording& recording, tables::FrameId frame);

std::string_view Basename(std::string_view path);

}  // namespace vramscope::query
