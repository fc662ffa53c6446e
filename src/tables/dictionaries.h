// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tables/rows.h"
#include "tables/string_table.h"
#include "util/budget.h"
#include "util/containers/intern_table.h"

namespace vramscope::tables {

struct Tables;

// The texts, frames and stacks of a recording, every equal value once. The reader of live files
// fills one, resolve adds to a copy of it, and importers make their own.
//
//   texts          frames                      stacks
//   1 "main"       1 main, train.py:12         1 frame 1                <- outermost
//   2 "train.py"   2 forward, model.py:40      2 frame 2, called by 1   <- an allocation's
//
// Row 0 of each says "none". An id is valid for good; a text is valid until the next AddText().
// A copy has the same ids. Not thread-safe; const use is.
class Dictionaries {
 public:
  // Far above what any writer records: a longer chain of callers is damage, or an attack on readers
  // that follow it for each event.
  static constexpr uint16_t kMaxStackDepth = 1024;

  explicit Dictionaries(uint16_t max_stack_depth = kMaxStackDepth)
      : frames_(1), stacks_(1), max_stack_depth_(max_stack_depth) {}

  // What goes beyond the budget becomes "none". Without one, nothing is refused.
  void ChargeTo(util::Budget* budget) { budget_ = budget; }
  // Takes what a row of another table costs.
  bool Charge(const char* what, uint64_t bytes) {
    return budget_ == nullptr || budget_->Charge(what, 1, bytes);
  }

  StringId AddText(std::string_view text);
  FrameId AddFrame(const FrameRow& frame);
  // `object`: the address of the torch.nn.Module whose method the frame runs, or 0. Returns
  // `parent` where that is too deep.
  StackId AddStack(StackId parent, FrameId frame, uint64_t object = 0);

  // What is unknown reads as "none".
  std::string_view text(StringId id) const { return texts_[id]; }
  const FrameRow& frame(FrameId id) const {
    return frames_[id.value < frames_.size() ? id.value : 0];
  }
  const StackRow& stack(StackId id) const {
    return stacks_[id.value < stacks_.size() ? id.value : 0];
  }
  uint64_t object(StackId id) const { return id.value < objects_.size() ? objects_[id.value] : 0; }
  // With row 0.
  size_t text_count() const { return texts_.size(); }
  size_t frame_count() const { return frames_.size(); }
  size_t stack_count() const { return stacks_.size(); }
  // Frames that were left out as too deep.
  uint64_t cut_frames() const { return cut_frames_; }

  // Calls edit(FrameRow&) for every frame. Those that become equal stay two.
  template <class Edit>
  void EditFrames(const Edit& edit) {
    frame_ids_ = {};
    for (uint32_t i = 1; i < frames_.size(); ++i) {
      edit(frames_[i]);
      Enter(frames_[i], i);
    }
  }

  // Hands over all rows.
  void MoveTo(Tables* tables);

 private:
  uint32_t Enter(const FrameRow& frame, uint32_t fresh);
  bool IsOver() const { return budget_ != nullptr && budget_->IsOver(); }

  StringTable texts_;
  std::vector<FrameRow> frames_;
  std::vector<StackRow> stacks_;
  std::vector<uint64_t> objects_;  // by stack; those behind the last are 0
  std::vector<uint16_t> depths_ = std::vector<uint16_t>(1);  // by stack
  util::InternTable text_ids_, frame_ids_, stack_ids_;
  util::Budget* budget_ = nullptr;
  uint16_t max_stack_depth_;
  uint64_t cut_frames_ = 0;
};

}  // namespace vramscope::tables
