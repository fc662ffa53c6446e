// SPDX-License-Identifier: Apache-2.0
#include "tables/dictionaries.h"

#include <functional>
#include <utility>

#include "tables/recording.h"

namespace vramscope::tables {
namespace {

// What an entry takes of the table that finds it again.
constexpr uint64_t kSlotBytes = 2 * sizeof(uint32_t);

uint64_t HashText(std::string_view text) {
  return util::Mix64(std::hash<std::string_view>{}(text));
}

uint64_t HashFrame(const FrameRow& frame) {
  uint64_t hash = util::Mix64((uint64_t{frame.function.value} << 32) | frame.file.value);
  hash = util::Mix64(hash ^ ((uint64_t{frame.line} << 32) | frame.image.value));
  return util::Mix64(hash ^ frame.pc ^ ToWord(frame.kind) << 1);
}

uint64_t HashStack(const StackRow& stack, uint64_t object) {
  const uint64_t hash = util::Mix64((uint64_t{stack.parent.value} << 32) | stack.frame.value);
  return object == 0 ? hash : util::Mix64(hash ^ object);
}

}  // namespace

StringId Dictionaries::AddText(std::string_view text) {
  if (text.empty() || IsOver())
    return {};
  const auto fresh = static_cast<uint32_t>(texts_.size());
  const uint32_t id = text_ids_.Intern(
      HashText(text), fresh, [&](uint32_t other) { return texts_[StringId{other}] == text; },
      [&](uint32_t other) { return HashText(texts_[StringId{other}]); });
  if (id == fresh) {
    texts_.Add(text);
    (void)Charge("names", sizeof(uint64_t) + kSlotBytes + text.size());
  }
  return StringId{id};
}

uint32_t Dictionaries::Enter(const FrameRow& frame, uint32_t fresh) {
  return frame_ids_.Intern(
      HashFrame(frame), fresh, [&](uint32_t other) { return frames_[other] == frame; },
      [&](uint32_t other) { return HashFrame(frames_[other]); });
}

FrameId Dictionaries::AddFrame(const FrameRow& frame) {
  if (IsOver())
    return {};
  const auto fresh = static_cast<uint32_t>(frames_.size());
  const uint32_t id = Enter(frame, fresh);
  if (id == fresh) {
    frames_.push_back(frame);
    (void)Charge("places", sizeof(FrameRow) + kSlotBytes);
  }
  return FrameId{id};
}

StackId Dictionaries::AddStack(StackId parent, FrameId frame, uint64_t object) {
  if (IsOver())
    return {};
  if (depths_[parent.value] == max_stack_depth_) {
    ++cut_frames_;
    return parent;
  }
  const StackRow stack{parent, frame};
  const auto fresh = static_cast<uint32_t>(stacks_.size());
  const uint32_t id = stack_ids_.Intern(
      HashStack(stack, object), fresh,
      [&](uint32_t other) {
        return stacks_[other] == stack && this->object(StackId{other}) == object;
      },
      [&](uint32_t other) { return HashStack(stacks_[other], this->object(StackId{other})); });
  if (id == fresh) {
    stacks_.push_back(stack);
    depths_.push_back(static_cast<uint16_t>(depths_[parent.value] + 1));
    if (object != 0) {
      objects_.resize(fresh);
      objects_.push_back(object);
    }
    (void)Charge("stacks", sizeof(StackRow) + sizeof depths_[0] + kSlotBytes);
  }
  return StackId{id};
}

void Dictionaries::MoveTo(Tables* tables) {
  tables->strings = std::move(texts_);
  tables->frames = std::move(frames_);
  tables->stacks = std::move(stacks_);
}

}  // namespace vramscope::tables
