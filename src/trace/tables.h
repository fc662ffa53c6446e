// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "format/enums.h"
#include "trace/trace.h"
#include "util/budget.h"
#include "util/containers/intern_table.h"

namespace vramscope::trace {

// Fills the tables of a Trace, every equal value once. Entry 0 of each ("none") stands already.
// What goes beyond the budget becomes "none".
class TableBuilder {
 public:
  // Far above what any writer records: a longer chain of callers is damage, or made to do harm to
  // whoever follows it for each event.
  static constexpr uint16_t kMaxStackDepth = 1024;

  // Without a budget nothing is refused.
  TableBuilder(std::vector<std::string>* strings,
               std::vector<Frame>* frames,
               std::vector<Stack>* stacks,
               util::Budget* budget = nullptr);

  StringId AddString(std::string_view text);
  // Valid until the next AddString().
  std::string_view Text(StringId id) const { return (*strings_)[id.value]; }
  FrameId AddFrame(const Frame& frame);
  // `parent` itself where that is too deep.
  StackId AddStack(StackId parent, FrameId frame, uint64_t object = 0);
  // Frames that were left out as too deep.
  uint64_t cut_frames() const { return cut_frames_; }
  // Takes what a row of another table costs.
  bool Charge(const char* what, uint64_t bytes) {
    return budget_ == nullptr || budget_->Charge(what, 1, bytes);
  }

 private:
  std::vector<std::string>* strings_;
  std::vector<Frame>* frames_;
  std::vector<Stack>* stacks_;
  util::Budget* budget_;
  std::vector<uint16_t> depths_ = std::vector<uint16_t>(1);  // of stacks
  uint64_t cut_frames_ = 0;
  util::InternTable string_ids_;
  util::InternTable frame_ids_;
  util::InternTable stack_ids_;
};

// Counts what is missing, by the names of format/losses.def.
class LossCounter {
 public:
  void Add(format::Loss loss, uint64_t count, uint64_t bytes = 0);
  // Losses of newer writers keep their row under the name that this version has for them.
  void AddRaw(uint64_t loss, uint64_t count, uint64_t bytes);
  std::vector<Loss> Rows() const;

 private:
  struct Sum {
    uint64_t count = 0;
    uint64_t bytes = 0;
  };
  std::map<uint64_t, Sum> sums_;
};

}  // namespace vramscope::trace
