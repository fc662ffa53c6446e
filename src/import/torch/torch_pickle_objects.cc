// SPDX-License-Identifier: Apache-2.0 The dicts and lists of a snapshot while it is read, and
// access to them.
#include <algorithm>
#include <vector>

#include "import/torch/torch_pickle.h"

namespace vramscope::imports {

PickleKey TorchPickle::KeyOf(const PickleValue& value) const {
  return value.kind == PickleValue::Kind::kText ? texts_[value.bits].key : PickleKey::kNone;
}

TorchPickle::Object* TorchPickle::ObjectOf(const PickleValue& value) {
  return value.kind == PickleValue::Kind::kObject ? &objects_[value.bits] : nullptr;
}
const TorchPickle::Object* TorchPickle::ObjectOf(const PickleValue& value) const {
  return value.kind == PickleValue::Kind::kObject ? &objects_[value.bits] : nullptr;
}

util::Status TorchPickle::SetItems(size_t from) {
  Object* const object = from == 0 ? nullptr : ObjectOf(operands_[from - 1]);
  if (object == nullptr || (operands_.size() - from) % 2 != 0)
    return Damaged();
  const std::span<const PickleValue> items(operands_.data() + from, operands_.size() - from);
  using Kind = Object::Kind;
  if (items.empty()) {
    return {};
  }
  if (object->kind == Kind::kEmptyDict && (MakeEvent(items, object) || MakeFrame(items, object))) {
    operands_.resize(from);
    return {};
  }
  if (object->kind == Kind::kEmptyDict) {
    if (!budget_.Charge("dicts", 1, sizeof(std::vector<Pair>)))
      return {};
    *object = {Kind::kDict, static_cast<uint32_t>(dicts_.size())};
    dicts_.emplace_back();
  }
  if (object->kind != Kind::kDict)
    return Damaged();
  std::vector<Pair>& dict = dicts_[object->index];
  if (budget_.Charge("values", items.size(), 2 * sizeof(PickleValue))) {
    for (size_t i = 0; i < items.size(); i += 2)
      dict.emplace_back(items[i], items[i + 1]);
  }
  operands_.resize(from);
  return {};
}

util::Status TorchPickle::Append(size_t from) {
  Object* const object = from == 0 ? nullptr : ObjectOf(operands_[from - 1]);
  if (object == nullptr)
    return Damaged();
  const std::span<const PickleValue> items(operands_.data() + from, operands_.size() - from);
  using Kind = Object::Kind;
  if (items.empty())
    return {};
  const bool may_be_stack = object->kind == Kind::kEmptyList || object->kind == Kind::kStack;
  if (may_be_stack && MakeStack(items, object)) {
    operands_.resize(from);
    return {};
  }
  if (object->kind == Kind::kEmptyList) {
    if (!budget_.Charge("lists", 1, sizeof(std::vector<PickleValue>)))
      return {};
    *object = {Kind::kList, static_cast<uint32_t>(lists_.size())};
    lists_.emplace_back();
  }
  if (object->kind != Kind::kList)
    return Damaged();
  std::vector<PickleValue>& list = lists_[object->index];
  if (budget_.Charge("values", items.size(), 2 * sizeof(PickleValue)))
    list.insert(list.end(), items.begin(), items.end());
  operands_.resize(from);
  return {};
}

bool TorchPickle::MakeEvent(std::span<const PickleValue> items, Object* object) {
  using Kind = PickleValue::Kind;
  PickleEvent event;
  for (size_t i = 0; i < items.size(); i += 2) {
    const PickleValue& value = items[i + 1];
    const auto text = [&] {
      return value.kind == Kind::kText ? static_cast<uint32_t>(value.bits) : PickleEvent::kNoText;
    };
    const auto number = [&](uint64_t* into) {
      const std::optional<uint64_t> found = Number(value);
      event.is_damaged |= !found.has_value();
      *into = found.value_or(0);
    };
    switch (KeyOf(items[i])) {
      case PickleKey::kAction:
        event.action = text();
        break;
      case PickleKey::kAddr:
        number(&event.address);
        break;
      case PickleKey::kSize:
        number(&event.bytes);
        break;
      case PickleKey::kDeviceFree:
        number(&event.address);
        break;
      case PickleKey::kStream:
        event.stream = value.kind == Kind::kInt ? value.bits : 0;
        break;
      case PickleKey::kTimeUs:
        event.has_time = value.kind == Kind::kInt;
        event.time_us = static_cast<int64_t>(event.has_time ? value.bits : 0);
        break;
      case PickleKey::kCategory:
        event.category = text();
        break;
      case PickleKey::kMetadata:
        event.metadata = text();
        break;
      case PickleKey::kFrames:
        event.frames = value.kind == Kind::kObject ? static_cast<uint32_t>(value.bits) : UINT32_MAX;
        break;
      default:
        break;
    }
  }
  if (event.action == PickleEvent::kNoText || !budget_.Charge("events", 1, sizeof(PickleEvent)))
    return false;
  *object = {Object::Kind::kEvent, static_cast<uint32_t>(events_.size())};
  events_.push_back(event);
  return true;
}

bool TorchPickle::MakeFrame(std::span<const PickleValue> items, Object* object) {
  PickleFrame frame;
  bool has_line = false;
  for (size_t i = 0; i < items.size(); i += 2) {
    const PickleValue& value = items[i + 1];
    const PickleKey key = KeyOf(items[i]);
    if (value.kind == PickleValue::Kind::kText && key == PickleKey::kFilename)
      frame.file = static_cast<uint32_t>(value.bits);
    else if (value.kind == PickleValue::Kind::kText && key == PickleKey::kName)
      frame.function = static_cast<uint32_t>(value.bits);
    else if (key == PickleKey::kLine) {
      frame.line = static_cast<uint32_t>(std::min<uint64_t>(Number(value).value_or(0), INT32_MAX));
      has_line = true;
    }
  }
  if (!has_line || frame.file == PickleEvent::kNoText || frame.function == PickleEvent::kNoText ||
      !budget_.Charge("frames", 1, sizeof(PickleFrame)))
    return false;
  *object = {Object::Kind::kFrame, static_cast<uint32_t>(frames_.size())};
  frames_.push_back(frame);
  return true;
}

bool TorchPickle::MakeStack(std::span<const PickleValue> items, Object* object) {
  // Compares existing entries in batches.
  const std::pair<uint64_t, uint32_t> before =
      object->kind == Object::Kind::kStack ? stacks_[object->index] : stacks_[0];
  if (stacks_.size() >= UINT32_MAX - 1 || items.size() + before.second >= UINT32_MAX)
    return false;
  const bool all_are_frames = std::all_of(items.begin(), items.end(), [&](const PickleValue& item) {
    const Object* const found = ObjectOf(item);
    return found != nullptr && found->kind == Object::Kind::kFrame;
  });
  if (!all_are_frames)
    return false;
  const size_t begin = stack_frames_.size();
  const auto count = static_cast<uint32_t>(items.size() + before.second);
  // Each append to a long list is charged.
  if (!budget_.Charge("frames", count, sizeof(uint32_t)))
    return false;
  uint64_t hash = 0;
  const auto add = [&](uint32_t frame) {
    stack_frames_.push_back(frame);
    hash = util::Mix64(hash * 31 + frame + 1);
  };
  for (uint32_t i = 0; i < before.second; ++i)
    add(stack_frames_[before.first + i]);
  for (const PickleValue& item : items)
    add(objects_[item.bits].index);
  const auto hash_of = [&](uint32_t number) {
    uint64_t of_known = 0;
    for (const uint32_t frame : stack(number))
      of_known = util::Mix64(of_known * 31 + frame + 1);
    return of_known;
  };
  const std::span<const uint32_t> made(stack_frames_.data() + begin, count);
  const auto next = static_cast<uint32_t>(stacks_.size());
  const uint32_t number = stack_numbers_.Intern(
      hash, next, [&](uint32_t known) { return std::ranges::equal(stack(known), made); }, hash_of);
  if (number == next)
    stacks_.emplace_back(begin, count);
  else
    stack_frames_.resize(begin);
  *object = {Object::Kind::kStack, number};
  return true;
}

const std::vector<PickleValue>* TorchPickle::ListOf(const PickleValue& value) const {
  static const std::vector<PickleValue> kEmpty;
  const Object* const object = ObjectOf(value);
  if (object == nullptr)
    return nullptr;
  if (object->kind == Object::Kind::kEmptyList)
    return &kEmpty;
  return object->kind == Object::Kind::kList ? &lists_[object->index] : nullptr;
}

bool TorchPickle::IsDict(const PickleValue& value) const {
  const Object* const object = ObjectOf(value);
  return object != nullptr &&
         (object->kind == Object::Kind::kDict || object->kind == Object::Kind::kEmptyDict);
}

PickleValue TorchPickle::Get(const PickleValue& dict, PickleKey key) const {
  const Object* const object = ObjectOf(dict);
  PickleValue found;
  if (object != nullptr && object->kind == Object::Kind::kDict) {
    // The last of equal keys counts, as in Python. Our dicts have few keys.
    const std::vector<Pair>& pairs = dicts_[object->index];
    for (size_t i = 0; i < std::min<size_t>(pairs.size(), 64); ++i) {
      if (KeyOf(pairs[i].first) == key)
        found = pairs[i].second;
    }
  }
  return found;
}

const PickleEvent* TorchPickle::EventOf(const PickleValue& value) const {
  const Object* const object = ObjectOf(value);
  return object != nullptr && object->kind == Object::Kind::kEvent ? &events_[object->index]
                                                                   : nullptr;
}

uint32_t TorchPickle::StackOf(const PickleValue& value) const {
  return value.kind == PickleValue::Kind::kObject ? StackOfObject(static_cast<uint32_t>(value.bits))
                                                  : 0;
}

uint32_t TorchPickle::StackOfObject(uint32_t object) const {
  return object < objects_.size() && objects_[object].kind == Object::Kind::kStack
             ? objects_[object].index
             : 0;
}

std::span<const uint32_t> TorchPickle::stack(uint32_t number) const {
  const auto& [begin, count] = stacks_[number];
  return {stack_frames_.data() + begin, count};
}

std::string_view TorchPickle::text(uint32_t number) const {
  if (number >= texts_.size())
    return {};
  return {reinterpret_cast<const char*>(data_.data()) + texts_[number].offset, texts_[number].size};
}

std::optional<uint64_t> TorchPickle::Number(const PickleValue& value) const {
  const bool is_number = (value.kind == PickleValue::Kind::kInt && value.bits <= INT64_MAX) ||
                         value.kind == PickleValue::Kind::kUint;
  return is_number ? std::optional(value.bits) : std::nullopt;
}

std::string_view TorchPickle::TextOf(const PickleValue& value) const {
  return value.kind == PickleValue::Kind::kText ? text(static_cast<uint32_t>(value.bits))
                                                : std::string_view();
}

}  // namespace vramscope::imports
