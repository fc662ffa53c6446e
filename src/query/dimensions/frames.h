// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tables/recording.h"

// Frames as people read them. What is the user's own code is decided here and nowhere else.
namespace vramscope::query {

// The frames of a stack, innermost first, at most `limit` of them.
std::vector<tables::FrameId> StackFrames(const tables::Recording& recording,
                                         tables::StackId stack,
                                         size_t limit = static_cast<size_t>(-1));

// Limits of a stack as text. A deeper or longer stack loses its outermost frames, which are
// counted. Recorded stacks stay below: the probe records at most 256 Python frames or 96 native
// ones, and names reach the limit only with 1 KiB (Python) or 2.7 KiB (C++) in every frame.
inline constexpr size_t kMaxStackFrames = 512;
inline constexpr size_t kMaxStackBytes = size_t{256} << 10;

// "(12 more frames)", in place of the outermost ones.
std::string FramesLeftOut(size_t count);

// Not to be shared between threads.
class ShownStacks {
 public:
  struct Stack {
    std::vector<tables::FrameId> frames;  // innermost first
    size_t left_out = 0;                  // of the outermost
  };

  explicit ShownStacks(const tables::Recording& recording) : recording_(recording) {}
  Stack Of(tables::StackId stack) const;
  // FormatFrame() of each, outermost first, and before them what was left out.
  std::vector<std::string> Texts(tables::StackId stack) const;

 private:
  const std::string& FrameText(tables::FrameId frame) const;
  size_t Depth(tables::StackId stack) const;

  const tables::Recording& recording_;
  mutable std::vector<uint32_t> depths_;                     // by stack; empty until one is deep
  mutable std::unordered_map<uint32_t, std::string> texts_;  // by frame: stacks share most of them
  mutable size_t texts_bytes_ = 0;
};

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
  // By stack: the innermost frame that is the user's, 0 where none is, + 1; 0: not asked yet. A
  // caller's answer is that of what it calls: all stacks together take no longer than their number.
  std::vector<uint32_t> known_;
  std::vector<uint32_t> asked_;  // on the way up
};

// "train.py:42 in forward"; a native frame without a source line is "name (libfoo.so)".
std::string FormatFrame(const tables::Recording& recording, tables::FrameId frame);

// The source text of the frame's line; empty if it is not recorded.
std::string_view SourceOf(const tables::Recording& recording, tables::FrameId frame);

std::string_view Basename(std::string_view path);

// Whether a frame of a stack says yes. Remembers the answers; not to be shared between threads.
class StackQuestion {
 public:
  using Says = bool (*)(std::string_view function, std::string_view file);
  StackQuestion(const tables::Recording& recording, Says says)
      : recording_(recording), says_(says) {}
  bool Of(tables::StackId stack);

 private:
  const tables::Recording& recording_;
  const Says says_;
  std::unordered_map<uint32_t, bool> known_;
};

// For a StackQuestion: a forward that runs again in the backward, by a checkpoint of the program or
// by a compiler's own choice.
bool IsComputedAgain(std::string_view function, std::string_view file);

}  // namespace vramscope::query
