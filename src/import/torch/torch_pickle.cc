// SPDX-License-Identifier: Apache-2.0 The opcodes of a pickle. torch_pickle_objects.cc has the
// objects that they make.
#include "import/torch/torch_pickle.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace vramscope::imports {
namespace {

// Limits of texts and memo entries; those of snapshots are smaller.
constexpr uint64_t kMaxPickleText = UINT32_MAX - 1;
constexpr uint64_t kMaxMemo = uint64_t{1} << 31;

const std::unordered_map<std::string_view, PickleKey>& Keys() {
  static const std::unordered_map<std::string_view, PickleKey> kKeys = {
#define VRAMSCOPE_PICKLE_KEY(Name, text) {text, PickleKey::k##Name},
#include "import/torch/torch_pickle_keys.def"
  };
  return kKeys;
}

// Opcodes that would make Python look up, create or call something.
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
      0, 0, [](uint32_t) { return false; }, [](uint32_t) { return uint64_t{0}; });
}

util::Status TorchPickle::Read() {
  const uint8_t* head = nullptr;
  if (!Take(2, &head))
    return Truncated();
  if (head[0] != 0x80 || head[1] < 2 || head[1] > 5)
    return Fail("it is not a pickle of protocol 2 to 5");
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

util::Status TorchPickle::Damaged() const {
  return Fail(fmt::format("the pickle is damaged at byte {}", at_ - 1));
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
      "{}: contains code ({} at byte {}{}): a memory snapshot has none, and vramscope does not "
      "run it",
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
  if (!TakeNumber(size_of_size, &size) || size > kMaxPickleText || !Take(size, &bytes))
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
    return Damaged();
  *at = marks_.back();
  marks_.pop_back();
  return {};
}

util::Status TorchPickle::MakeTuple(size_t count) {
  if (operands_.size() < count)
    return Damaged();
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
    return Damaged();
  if (number >= memo_.size()) {
    // Numbers are assigned in order; gaps are charged to the budget.
    if (number >= kMaxMemo ||
        !budget_.Charge("remembered values", number + 1 - memo_.size(), sizeof(PickleValue)))
      return budget_.IsOver() ? util::Status() : Damaged();
    memo_.resize(number + 1, {PickleValue::Kind::kOther, 0});
  }
  memo_[number] = operands_.back();
  return {};
}

util::Status TorchPickle::Recall(uint64_t number) {
  if (number >= memo_.size())
    return Damaged();
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
        return Damaged();
      operands_.pop_back();
      return {};
    case '1':  // POP_MARK
      VRAMSCOPE_RETURN_IF_ERROR(PopMark(&mark));
      operands_.resize(mark);
      return {};
    case '2':  // DUP
      if (operands_.empty())
        return Damaged();
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
        return Damaged();
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
  return Fail(fmt::format("opcode {:#04x} at byte {} does not belong to a memory snapshot", opcode,
                          at_ - 1));
}

}  // namespace vramscope::imports
