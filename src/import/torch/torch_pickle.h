// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "util/budget.h"
#include "util/containers/intern_table.h"
#include "util/status.h"

// Reads the pickles of PyTorch's memory snapshots without running anything. It supports lists,
// dicts, tuples, numbers and texts of protocols 2 to 5, and rejects references to code.
//
// A snapshot has millions of events, each a dict with a list of frames. Each becomes a few words
// when its dict ends (PickleEvent, a stack number), so memory use is a fraction of the file.
// Objects are not followed while reading, so depth and cycles do not matter. Code that walks them
// charges the budget for each step, because a small file can name the same list a million times.
namespace vramscope::imports {

// The keys that are used.
enum class PickleKey : uint8_t {
  kNone,
#define VRAMSCOPE_PICKLE_KEY(Name, text) k##Name,
#include "import/torch/torch_pickle_keys.def"
};

struct PickleValue {
  enum class Kind : uint8_t { kNone, kBool, kInt, kUint, kText, kObject, kOther };
  Kind kind = Kind::kNone;
  uint64_t bits =
      0;  // kInt: two's complement; kUint: above INT64_MAX; or the number of a text or object
};

// An entry of device_traces.
struct PickleEvent {
  static constexpr uint32_t kNoText = UINT32_MAX;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t stream = 0;
  int64_t time_us = 0;
  uint32_t action = kNoText;  // numbers of texts
  uint32_t category = kNoText;
  uint32_t metadata = kNoText;
  uint32_t frames = UINT32_MAX;  // the number of an object
  bool has_time = false;
  bool is_damaged = false;  // a number is missing or out of range
};

struct PickleFrame {
  uint32_t file = PickleEvent::kNoText;
  uint32_t function = PickleEvent::kNoText;
  uint32_t line = 0;
  friend bool operator==(const PickleFrame&, const PickleFrame&) = default;
};

class TorchPickle {
 public:
  // Texts refer to `data`, which must outlive this. Errors name `path`.
  TorchPickle(std::span<const uint8_t> data, const std::string& path, util::Budget* budget);

  util::Status Read();

  const PickleValue& root() const { return root_; }
  // Access to the object at `value`; null or "none" for another type.
  const std::vector<PickleValue>* ListOf(const PickleValue& value) const;  // tuples too
  bool IsDict(const PickleValue& value) const;
  PickleValue Get(const PickleValue& dict, PickleKey key) const;
  const PickleEvent* EventOf(const PickleValue& value) const;
  // A number for stack(); 0: none.
  uint32_t StackOf(const PickleValue& value) const;
  uint32_t StackOfObject(uint32_t object) const;
  size_t stack_count() const { return stacks_.size(); }
  // Frames, innermost first.
  std::span<const uint32_t> stack(uint32_t number) const;
  size_t frame_count() const { return frames_.size(); }
  const PickleFrame& frame(uint32_t number) const { return frames_[number]; }
  std::string_view text(uint32_t number) const;
  std::optional<uint64_t> Number(const PickleValue& value) const;
  std::string_view TextOf(const PickleValue& value) const;

 private:
  struct Object {
    enum class Kind : uint8_t { kEmptyDict, kEmptyList, kDict, kList, kEvent, kFrame, kStack };
    Kind kind;
    uint32_t index;
  };
  struct Text {
    uint64_t offset;
    uint32_t size;
    PickleKey key;
  };
  using Pair = std::pair<PickleValue, PickleValue>;

  util::Status Step(uint8_t opcode);
  util::Status Fail(const std::string& what) const;
  util::Status Truncated() const;
  util::Status Damaged() const;  // at the opcode that was read last
  util::Status RefuseCode(uint8_t opcode, const char* name) const;
  bool Take(size_t size, const uint8_t** bytes);
  bool TakeNumber(size_t size, uint64_t* value);
  util::Status PushInt(size_t size);
  util::Status PushLong(size_t size_of_size);
  util::Status PushText(size_t size_of_size);
  util::Status PushBytes(size_t size_of_size);
  util::Status Push(PickleValue value);
  util::Status PushObject(Object::Kind kind);
  util::Status PopMark(size_t* at);
  util::Status MakeTuple(size_t count);
  util::Status Remember(uint64_t number);
  util::Status Recall(uint64_t number);
  util::Status SetItems(size_t from);
  util::Status Append(size_t from);

  PickleKey KeyOf(const PickleValue& value) const;
  Object* ObjectOf(const PickleValue& value);
  const Object* ObjectOf(const PickleValue& value) const;
  bool MakeEvent(std::span<const PickleValue> items, Object* object);
  bool MakeFrame(std::span<const PickleValue> items, Object* object);
  bool MakeStack(std::span<const PickleValue> items, Object* object);

  std::span<const uint8_t> data_;
  const std::string& path_;
  util::Budget& budget_;
  size_t at_ = 0;
  bool done_ = false;
  PickleValue root_;
  std::vector<PickleValue> operands_;
  std::vector<size_t> marks_;
  std::vector<PickleValue> memo_;
  std::vector<Object> objects_;
  std::vector<Text> texts_;
  std::vector<std::vector<Pair>> dicts_;
  std::vector<std::vector<PickleValue>> lists_;
  std::vector<PickleEvent> events_;
  std::vector<PickleFrame> frames_;
  std::vector<uint32_t> stack_frames_;
  std::vector<std::pair<uint64_t, uint32_t>> stacks_;  // begin in stack_frames_, count
  util::InternTable stack_numbers_;
};

}  // namespace vramscope::imports
