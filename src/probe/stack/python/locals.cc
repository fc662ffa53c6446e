// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "probe/stack/python/walk.h"

namespace vramscope::probe {
namespace {

// As engines call it; the first in a function counts.
constexpr const char* kBatchNames[] = {"batch_size", "bs",       "num_tokens",
                                       "num_reqs",   "num_seqs", "batch"};
constexpr size_t kLongestName = 16;
constexpr int64_t kMostVariables = 1024;
constexpr uint32_t kPython312Hex = 0x030c0000;
constexpr uint32_t kPython314Hex = 0x030e0000;

bool IsA(const char* object, const char* type_name) {
  constexpr size_t kTypeName = 24;  // PyTypeObject.tp_name
  const auto* const type = ReadAt<const char*>(object, kObjectType);
  return std::strcmp(ReadAt<const char*>(type, kTypeName), type_name) == 0;
}

// PyLongObject: a count of digits with a sign, then digits of 30 bits. 0 if it is not of one digit
// and positive.
uint32_t PositiveDigit(const char* object) {
  const auto word = ReadAt<uint64_t>(object, 16);
  const uint64_t one = g_python.version_hex >= kPython312Hex ? 1 << 3 : 1;
  return word == one ? ReadAt<uint32_t>(object, 24) : 0;
}

struct Batch {
  const char* name = nullptr;
  uint32_t value = 0;
};

// Of the function that runs in this frame.
Batch FindBatch(const PythonLayout& layout, const char* frame, const char* code) {
  const auto* const names = ReadAt<const char*>(code, layout.code_variables);
  if (names == nullptr || !IsA(names, "tuple"))
    return {};
  const size_t items = g_python.version_hex >= kPython314Hex ? 32 : 24;  // PyTupleObject.ob_item
  const int64_t count = ReadAt<int64_t>(names, kTupleSize);
  Batch found;
  size_t rank = std::size(kBatchNames);
  for (int64_t i = 0; i < count && i < kMostVariables; ++i) {
    const size_t offset = static_cast<size_t>(i) * sizeof(void*);
    const auto* const name = ReadAt<const char*>(names, items + offset);
    char text[kLongestName + 1] = {};
    if (ReadAt<int64_t>(name, kUnicodeLength) > int64_t{kLongestName - 4})
      continue;
    CopyPythonString(layout, name, text, kLongestName);
    for (size_t r = 0; r < rank; ++r) {
      if (std::strcmp(text, kBatchNames[r]) != 0)
        continue;
      const auto* const value = reinterpret_cast<const char*>(
          Untagged(layout, ReadAt<uint64_t>(frame, layout.frame_locals + offset)));
      // A variable without a value yet is null.
      if (value == nullptr || !IsA(value, "int"))
        break;
      if (const uint32_t number = PositiveDigit(value); number != 0) {
        found = {kBatchNames[r], number};
        rank = r;
      }
      break;
    }
  }
  return found;
}

}  // namespace

size_t DescribeBatch(char* out, size_t capacity) {
  if (!g_python.ready.load(std::memory_order_acquire))
    return 0;
  const void* const thread_state = g_python.this_thread_state();
  if (thread_state == nullptr)
    return 0;
  const PythonLayout& layout = g_python.layout;
  const PlainReader reader;
  const char* cursor = InnermostPythonFrame(layout, reader, thread_state);
  for (uint32_t depth = 0; cursor != nullptr && depth < kMaxPythonDepth; ++depth) {
    const char* const at = cursor;
    RawPythonFrame frame;
    if (!StepPythonFrame(layout, reader, &cursor, &frame))
      continue;
    if (const Batch batch = FindBatch(layout, at, frame.code); batch.name != nullptr) {
      const int size = std::snprintf(out, capacity, "%s=%u in ", batch.name, batch.value);
      if (size <= 0 || static_cast<size_t>(size) >= capacity)
        return 0;
      const auto* const function = ReadAt<const char*>(frame.code, layout.code_qualname);
      const auto used = static_cast<size_t>(size);
      return used + CopyPythonString(layout, function, out + used, capacity - used);
    }
  }
  return 0;
}

}  // namespace vramscope::probe
