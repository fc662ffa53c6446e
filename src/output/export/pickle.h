// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "output/export/export.h"
#include "util/text.h"

// Writes Python's pickle format, protocol 4, in one pass: lists, dicts, tuples, numbers and texts,
// whatever `pickle.load` and other readers make of them without running anything.
// https://github.com/python/cpython/blob/main/Lib/pickletools.py
namespace vramscope::output {

class PickleWriter {
 public:
  explicit PickleWriter(const ExportSink& sink) : pieces_(sink) { Bytes("\x80\x04"); }

  bool ok() const { return pieces_.status().ok(); }
  util::Status Finish() {
    Byte('.');
    return pieces_.Finish();
  }

  void BeginDict() { Begin('}'); }
  void EndDict() { End('u'); }
  void BeginList() { Begin(']'); }
  void EndList() { End('e'); }

  // Of the dict that was begun last: a key, whose value comes next.
  void Key(std::string_view name) {
    Item(2);
    Shared(name);
  }
  void Int(int64_t value) {
    Item(1);
    WriteInt(value);
  }
  void Uint(uint64_t value) {
    Item(1);
    if (value <= INT64_MAX) {
      WriteInt(static_cast<int64_t>(value));
      return;
    }
    Bytes(std::string_view("\x8a\x09", 2));
    Little(value, 8);
    Byte('\0');  // it is not negative
  }
  void Bool(bool value) {
    Item(1);
    Byte(value ? '\x88' : '\x89');
  }
  // A text that is written once, however often it comes.
  void Text(std::string_view text) {
    Item(1);
    Shared(text);
  }
  void Pair(int64_t first, int64_t second) {
    Item(1);
    WriteInt(first);
    WriteInt(second);
    Byte('\x86');
  }

  // The value that has just ended can be had again by this number.
  uint32_t Remember() {
    Byte('\x94');
    return memo_size_++;
  }
  void Again(uint32_t number) {
    Item(1);
    Get(number);
  }

 private:
  // Readers take what is between two marks at once, some as arguments of one call.
  static constexpr uint32_t kBatch = 1000;
  static constexpr size_t kMaxSharedBytes = size_t{64} << 20;

  struct Open {
    char end = 0;
    uint32_t count = 0;
  };

  // Another item of what is open. Values of a dict are counted with their key.
  void Item(uint32_t of_pair) {
    if (!open_.empty()) {
      Open& open = open_.back();
      const bool is_value = open.end == 'u' && of_pair == 1;
      if (!is_value && ++open.count > kBatch) {
        Byte(open.end);
        Byte('(');
        open.count = 1;
      }
    }
    pieces_.LineDone();
  }
  void Begin(char what) {
    Item(1);
    Byte(what);
    Byte('(');
    open_.push_back({what == '}' ? 'u' : 'e', 0});
  }
  void End(char how) {
    open_.pop_back();
    Byte(how);
  }

  void Shared(std::string_view text) {
    const auto found = shared_.find(std::string(text));
    if (found != shared_.end()) {
      Get(found->second);
      return;
    }
    const std::string valid = util::ValidUtf8(text);
    if (valid.size() < 256) {
      Byte('\x8c');
      Byte(static_cast<char>(valid.size()));
    } else {
      Byte('X');
      Little(valid.size(), 4);
    }
    Bytes(valid);
    // What is forgotten is written again.
    if (shared_bytes_ > kMaxSharedBytes) {
      shared_.clear();
      shared_bytes_ = 0;
    }
    shared_bytes_ += text.size();
    shared_.emplace(text, Remember());
  }
  void Get(uint32_t number) {
    Byte(number < 256 ? 'h' : 'j');
    Little(number, number < 256 ? 1 : 4);
  }
  void WriteInt(int64_t value) {
    if (value >= 0 && value < 256) {
      Byte('K');
      Little(static_cast<uint64_t>(value), 1);
    } else if (value >= 0 && value < 65536) {
      Byte('M');
      Little(static_cast<uint64_t>(value), 2);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
      Byte('J');
      Little(static_cast<uint64_t>(value), 4);
    } else {
      Byte('\x8a');
      // Two's complement, with the sign in the highest bit.
      const auto bits = static_cast<uint64_t>(value);
      const size_t bytes = static_cast<size_t>(std::bit_width(value < 0 ? ~bits : bits)) / 8 + 1;
      Byte(static_cast<char>(bytes));
      Little(bits, bytes);
    }
  }
  void Little(uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      Byte(static_cast<char>(value >> 8 * i & 0xff));
  }
  void Byte(char byte) { pieces_.text() += byte; }
  void Bytes(std::string_view bytes) { pieces_.text() += bytes; }

  ExportPieces pieces_;
  std::vector<Open> open_;
  std::unordered_map<std::string, uint32_t> shared_;
  size_t shared_bytes_ = 0;
  uint32_t memo_size_ = 0;
};

}  // namespace vramscope::output
