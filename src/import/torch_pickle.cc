// SPDX-License-Identifier: Apache-2.0
#include "import/torch_pickle.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace vramscope::imports {
namespace {

// Of the file as it is walked; a stack or a list as long as that is no snapshot's.
constexpr uint64_t kMaxTextBytes = UINT32_MAX - 1;
constexpr uint64_t kMaxMemo = uint64_t{1} << 31;

const std::unordered_map<std::string_view, PickleKey>& Keys() {
  static const std::unordered_map<std::string_view, PickleKey> kKeys = {
#define VRAMSCOPE_PICKLE_KEY(Name, text) {text, PickleKey::k##Name},
#include "import/torch_pickle_keys.def"
  };
  return kKeys;
}

// What would have Python look something up, make it or call it.
const char* CodeName(uint8_t opcode) {
  switch (opcode) {
    case 'c':
      return "GLOBAL";
    case 0x93:
      return "STACK_GLOBAL";
    case 'R':
      return "REDUCE";
    case 'b':
      return "BUILD";
    case 'i':
      return "INST";
    case 'o':
      return "OBJ";
    case 0x81:
      return "NEWOBJ";
    case 0x92:
      return "NEWOBJ_EX";
    case 0x82:
    case 0x83:
    case 0x84:
      return "EXT";
    case 'P':
    case 'Q':
      return "PERSID";
    default:
      return nullptr;
  }
}

}  // namespace

TorchPickle::TorchPickle(std::span<const uint8_t> data,
                         const std::string& path,
                         util::Budget* budget)
    : data_(data), path_(path), budget_(*budget) {
  stacks_.emplace_back(0, 0);
  // The empty stack is number 0.
  (void)stack_numbers_.Intern(
      0, 0, [](uint32_t) { return false; }, [](uint32_t) { return 0; });
}

util::Status TorchPickle::Read() {
  const uint8_t* head = nullptr;
  if (!Take(2, &head))
    return Truncated();
  if (head[0] != 0x80 || head[1] < 2 || head[1] > 5)
    return Fail("it is no pickle of protocol 2 to 5");
  while (!done_) {
    if (at_ == data_.size())
      return Truncated();
    VRAMSCOPE_RETURN_IF_ERROR(Step(data_[at_++]));
    if (budget_.IsOver())
      return budget_.Refusal(path_);
  }
  operands_ = {};
  memo_ = {};
  return {};
}

util::Status TorchPickle::Fail(const std::string& what) const {
  return util::Status::Error(fmt::format("{}: {}: save the snapshot again", path_, what));
}

util::Status TorchPickle::Truncated() const {
  return Fail(fmt::format("the pickle ends in the middle, after {} bytes", data_.size()));
}

util::Status TorchPickle::RefuseCode(uint8_t opcode, const char* name) const {
  std::string what;
  if (opcode == 'c' || opcode == 'i') {
    const auto rest = data_.subspan(at_, std::min<size_t>(data_.size() - at_, 100));
    std::string line(rest.begin(), rest.end());
    std::replace(line.begin(), line.end(), '\n', ' ');
    std::erase_if(line, [](char c) { return c < ' ' || c > '~'; });
    what = ": " + line.substr(0, line.find(' ', line.find(' ') + 1));
  } else if (opcode == 0x93 && operands_.size() >= 2) {
    what =
        fmt::format(": {} {}", TextOf(operands_[operands_.size() - 2]), TextOf(operands_.back()));
    what.resize(std::min<size_t>(what.size(), 100));
    std::erase_if(what, [](char c) { return c < ' ' || c > '~'; });
  }
  return util::Status::Error(fmt::format(
      "{}: it holds code ({} at byte {}{}), which a memory snapshot does not, and which "
      "vramscope does not run",
      path_, name, at_ - 1, what));
}

bool TorchPickle::Take(size_t size, const uint8_t** bytes) {
  if (size > data_.size() - at_)
    return false;
  *bytes = data_.data() + at_;
  at_ += size;
  return true;
}

bool TorchPickle::TakeNumber(size_t size, uint64_t* value) {
  const uint8_t* bytes = nullptr;
  if (!Take(size, &bytes))
    return false;
  *value = 0;
  std::memcpy(value, bytes, size);
  return true;
}

util::Status TorchPickle::Push(PickleValue value) {
  (void)budget_.Charge("values", 1, 1);
  operands_.push_back(value);
  return {};
}

util::Status TorchPickle::PushObject(Object::Kind kind) {
  if (objects_.size() >= UINT32_MAX - 1 || !budget_.Charge("objects", 1, sizeof(Object)))
    return budget_.IsOver() ? util::Status() : Fail("it has too many objects");
  objects_.push_back({kind, 0});
  return Push({PickleValue::Kind::kObject, objects_.size() - 1});
}

util::Status TorchPickle::PushInt(size_t size) {
  uint64_t value = 0;
  if (!TakeNumber(size, &value))
    return Truncated();
  // Four bytes have a sign, fewer have none.
  if (size == 4)
    value = static_cast<uint64_t>(int64_t{static_cast<int32_t>(value)});
  return Push({PickleValue::Kind::kInt, value});
}

util::Status TorchPickle::PushLong(size_t size_of_size) {
  uint64_t size = 0;
  const uint8_t* bytes = nullptr;
  if (!TakeNumber(size_of_size, &size) || !Take(size, &bytes))
    return Truncated();
  uint64_t value = 0;
  std::memcpy(&value, bytes, std::min<size_t>(size, 8));
  if (size == 0)
    return Push({PickleValue::Kind::kInt, 0});
  const bool is_negative = (bytes[size - 1] & 0x80) != 0;
  if (size < 8 && is_negative)
    value |= ~uint64_t{0} << 8 * size;
  if (size <= 8)
    return Push({PickleValue::Kind::kInt, value});
  if (size == 9 && bytes[8] == 0)
    return Push({PickleValue::Kind::kUint, value});
  return Push({PickleValue::Kind::kOther, 0});
}

util::Status TorchPickle::PushText(size_t size_of_size) {
  uint64_t size = 0;
  const uint8_t* bytes = nullptr;
  if (!TakeNumber(size_of_size, &size) || size > kMaxTextBytes || !Take(size, &bytes))
    return Truncated();
  if (!budget_.Charge("texts", 1, sizeof(Text)))
    return {};
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto key = size < 32 ? Keys().find(text) : Keys().end();
  texts_.push_back({at_ - size, static_cast<uint32_t>(size),
                    key == Keys().end() ? PickleKey::kNone : key->second});
  return Push({PickleValue::Kind::kText, texts_.size() - 1});
}

util::Status TorchPickle::PushBytes(size_t size_of_size) {
  uint64_t size = 0;
  const uint8_t* bytes = nullptr;
  if (!TakeNumber(size_of_size, &size) || !Take(size, &bytes))
    return Truncated();
  return Push({PickleValue::Kind::kOther, 0});
}

util::Status TorchPickle::PopMark(size_t* at) {
  if (marks_.empty() || marks_.back() > operands_.size())
    return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
  *at = marks_.back();
  marks_.pop_back();
  return {};
}

util::Status TorchPickle::MakeTuple(size_t count) {
  if (operands_.size() < count)
    return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
  std::vector<PickleValue> items(operands_.end() - static_cast<ptrdiff_t>(count), operands_.end());
  operands_.resize(operands_.size() - count);
  (void)budget_.Charge("values", count + 2, sizeof(PickleValue));
  VRAMSCOPE_RETURN_IF_ERROR(PushObject(Object::Kind::kList));
  if (budget_.IsOver())
    return {};
  objects_.back().index = static_cast<uint32_t>(lists_.size());
  lists_.push_back(std::move(items));
  return {};
}

util::Status TorchPickle::Remember(uint64_t number) {
  if (operands_.empty())
    return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
  if (number >= memo_.size()) {
    // Numbers are given in order; gaps are paid for.
    if (number >= kMaxMemo ||
        !budget_.Charge("remembered values", number + 1 - memo_.size(), sizeof(PickleValue)))
      return budget_.IsOver() ? util::Status()
                              : Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
    memo_.resize(number + 1, {PickleValue::Kind::kOther, 0});
  }
  memo_[number] = operands_.back();
  return {};
}

util::Status TorchPickle::Recall(uint64_t number) {
  if (number >= memo_.size())
    return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
  return Push(memo_[number]);
}

util::Status TorchPickle::Step(uint8_t opcode) {
  using Kind = PickleValue::Kind;
  uint64_t number = 0;
  size_t mark = 0;
  const uint8_t* bytes = nullptr;
  switch (opcode) {
    case 0x80:  // PROTO
      return Take(1, &bytes) ? util::Status() : Truncated();
    case 0x95:  // FRAME
      return Take(8, &bytes) ? util::Status() : Truncated();
    case '.':  // STOP
      if (operands_.empty())
        return Fail("the pickle is empty");
      root_ = operands_.back();
      done_ = true;
      return {};
    case '(':  // MARK
      (void)budget_.Charge("marks", 1, sizeof(size_t));
      marks_.push_back(operands_.size());
      return {};
    case '0':  // POP
      if (operands_.empty())
        return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
      operands_.pop_back();
      return {};
    case '1':  // POP_MARK
      VRAMSCOPE_RETURN_IF_ERROR(PopMark(&mark));
      operands_.resize(mark);
      return {};
    case '2':  // DUP
      if (operands_.empty())
        return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
      return Push(operands_.back());
    case 'N':
      return Push({Kind::kNone, 0});
    case 0x88:
      return Push({Kind::kBool, 1});
    case 0x89:
      return Push({Kind::kBool, 0});
    case 'K':
      return PushInt(1);
    case 'M':
      return PushInt(2);
    case 'J':
      return PushInt(4);
    case 0x8a:
      return PushLong(1);
    case 0x8b:
      return PushLong(4);
    case 'G':  // BINFLOAT
      return Take(8, &bytes) ? Push({Kind::kOther, 0}) : Truncated();
    case 0x8c:
    case 'U':
      return PushText(1);
    case 'X':
    case 'T':
      return PushText(4);
    case 0x8d:
      return PushText(8);
    case 'C':
      return PushBytes(1);
    case 'B':
      return PushBytes(4);
    case 0x8e:
    case 0x96:
      return PushBytes(8);
    case '}':
      return PushObject(Object::Kind::kEmptyDict);
    case ']':
      return PushObject(Object::Kind::kEmptyList);
    case ')':
      return PushObject(Object::Kind::kEmptyList);
    case 'd':  // DICT, LIST, TUPLE: of what is above the mark
    case 'l':
    case 't': {
      VRAMSCOPE_RETURN_IF_ERROR(PopMark(&mark));
      if (opcode != 'd')
        return MakeTuple(operands_.size() - mark);
      std::vector<PickleValue> items(operands_.begin() + static_cast<ptrdiff_t>(mark),
                                     operands_.end());
      operands_.resize(mark);
      VRAMSCOPE_RETURN_IF_ERROR(PushObject(Object::Kind::kEmptyDict));
      if (budget_.IsOver())
        return {};
      operands_.insert(operands_.end(), items.begin(), items.end());
      return SetItems(operands_.size() - items.size());
    }
    case 0x85:
      return MakeTuple(1);
    case 0x86:
      return MakeTuple(2);
    case 0x87:
      return MakeTuple(3);
    case 'a':  // APPEND, APPENDS
    case 's':  // SETITEM, SETITEMS
    case 'e':
    case 'u': {
      const size_t items = opcode == 'a' ? 1 : 2;
      if (opcode == 'e' || opcode == 'u')
        VRAMSCOPE_RETURN_IF_ERROR(PopMark(&mark));
      else if (operands_.size() < items + 1)
        return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
      else
        mark = operands_.size() - items;
      return opcode == 'a' || opcode == 'e' ? Append(mark) : SetItems(mark);
    }
    case 0x94:  // MEMOIZE
      return Remember(memo_.size());
    case 'q':
    case 'r':
      if (!TakeNumber(opcode == 'q' ? 1 : 4, &number))
        return Truncated();
      return Remember(number);
    case 'h':
    case 'j':
      if (!TakeNumber(opcode == 'h' ? 1 : 4, &number))
        return Truncated();
      return Recall(number);
    default:
      break;
  }
  if (const char* const name = CodeName(opcode); name != nullptr)
    return RefuseCode(opcode, name);
  return Fail(
      fmt::format("opcode {:#04x} at byte {} is none of a memory snapshot's", opcode, at_ - 1));
}

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
    return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
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
    return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
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
    return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
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
    return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
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
  // Those that it has already, in batches.
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
  // Appending to a long one over and over is paid for each time.
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
    // Of equal keys the last counts, as in Python. A dict of ours has few.
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
