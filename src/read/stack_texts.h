// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tables/recording.h"

namespace vramscope::read {

// Ids are positive int64.
inline constexpr uint64_t kIdMask = INT64_MAX;

uint64_t HashText(std::string_view text);

// The texts of a recording's frames, and ids of its stacks that are equal in all recordings.
class StackTexts {
 public:
  explicit StackTexts(const tables::Recording& recording);

  // `train.py:42 in forward`.
  const std::vector<std::string>& frames() const { return frames_; }
  // The innermost frame of the user's code, or the innermost of all; 0: none.
  size_t LineOf(tables::StackId stack) const;
  // 0: none.
  uint64_t IdOf(tables::StackId stack) const;
  // One frame a line, outermost first.
  std::string TextOf(tables::StackId stack) const;

 private:
  std::string FrameText(const tables::FrameRow& frame) const;
  // A stack's caller is an earlier row.
  tables::StackId CallerOf(tables::StackId stack) const;

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  std::vector<std::string> frames_;
  std::vector<uint64_t> ids_;  // by stack
};

}  // namespace vramscope::read
