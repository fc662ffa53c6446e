// SPDX-License-Identifier: Apache-2.0
#include "trace/tables.h"

#include <functional>

namespace vramscope::trace {
namespace {

// What an entry takes of the table that finds it again.
constexpr uint64_t kSlotBytes = 2 * sizeof(uint32_t);

uint64_t HashText(std::string_view text) {
  return util::Mix64(std::hash<std::string_view>{}(text));
}

uint64_t HashFrame(const Frame& frame) {
  uint64_t hash = util::Mix64((uint64_t{frame.function.value} << 32) | frame.file.value);
  hash = util::Mix64(hash ^ ((uint64_t{frame.line} << 32) | frame.image.value));
  return util::Mix64(hash ^ frame.pc ^ (frame.kind == FrameKind::kNative ? 1u : 0u) << 1);
}

bool SameFrame(const Frame& a, const Frame& b) {
  return a.kind == b.kind && a.function == b.function && a.file == b.file && a.line == b.line &&
         a.image == b.image && a.pc == b.pc;
}

uint64_t HashStack(const Stack& stack) {
  const uint64_t hash = util::Mix64((uint64_t{stack.parent.value} << 32) | stack.frame.value);
  return stack.object == 0 ? hash : util::Mix64(hash ^ stack.object);
}

}  // namespace

TableBuilder::TableBuilder(std::vector<std::string>* strings,
                           std::vector<Frame>* frames,
                           std::vector<Stack>* stacks,
                           util::Budget* budget)
    : strings_(strings), frames_(frames), stacks_(stacks), budget_(budget) {}

StringId TableBuilder::AddString(std::string_view text) {
  if (text.empty() || (budget_ != nullptr && budget_->IsOver()))
    return StringId{};
  const auto fresh = static_cast<uint32_t>(strings_->size());
  const uint32_t id = string_ids_.Intern(
      HashText(text), fresh, [&](uint32_t other) { return (*strings_)[other] == text; },
      [&](uint32_t other) { return HashText((*strings_)[other]); });
  if (id == fresh) {
    strings_->emplace_back(text);
    (void)Charge("names", sizeof(std::string) + kSlotBytes + text.size());
  }
  return StringId{id};
}

FrameId TableBuilder::AddFrame(const Frame& frame) {
  if (budget_ != nullptr && budget_->IsOver())
    return FrameId{};
  const auto fresh = static_cast<uint32_t>(frames_->size());
  const uint32_t id = frame_ids_.Intern(
      HashFrame(frame), fresh, [&](uint32_t other) { return SameFrame((*frames_)[other], frame); },
      [&](uint32_t other) { return HashFrame((*frames_)[other]); });
  if (id == fresh) {
    frames_->push_back(frame);
    (void)Charge("places", sizeof(Frame) + kSlotBytes);
  }
  return FrameId{id};
}

StackId TableBuilder::AddStack(StackId parent, FrameId frame, uint64_t object) {
  if (budget_ != nullptr && budget_->IsOver())
    return StackId{};
  if (depths_[parent.value] == kMaxStackDepth) {
    ++cut_frames_;
    return parent;
  }
  const Stack stack{parent, frame, object};
  const auto fresh = static_cast<uint32_t>(stacks_->size());
  const uint32_t id = stack_ids_.Intern(
      HashStack(stack), fresh,
      [&](uint32_t other) {
        const Stack& known = (*stacks_)[other];
        return known.parent == parent && known.frame == frame && known.object == object;
      },
      [&](uint32_t other) { return HashStack((*stacks_)[other]); });
  if (id == fresh) {
    stacks_->push_back(stack);
    depths_.push_back(static_cast<uint16_t>(depths_[parent.value] + 1));
    (void)Charge("stacks", sizeof(Stack) + sizeof depths_[0] + kSlotBytes);
  }
  return StackId{id};
}

void LossCounter::Add(format::Loss loss, uint64_t count, uint64_t bytes) {
  AddRaw(static_cast<uint64_t>(loss), count, bytes);
}

void LossCounter::AddRaw(uint64_t loss, uint64_t count, uint64_t bytes) {
  if (count == 0 && bytes == 0)
    return;
  Sum& sum = sums_[loss];
  sum.count += count;
  sum.bytes += bytes;
}

std::vector<Loss> LossCounter::Rows() const {
  std::vector<Loss> rows;
  for (const auto& [loss, sum] : sums_) {
    rows.push_back({format::LossName(loss), sum.count, sum.bytes});
  }
  return rows;
}

}  // namespace vramscope::trace
