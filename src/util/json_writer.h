// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace vramscope::util {

// Writes JSON as it goes, so that an export of any size needs no tree in memory. Integers are
// written exactly, strings always as valid UTF-8 (bytes that are not become U+FFFD), numbers that
// JSON cannot say (NaN, infinity) as null. Misuse (a value without a key in an object) is a
// programming mistake and is not checked.
class JsonWriter {
 public:
  using Sink = std::function<void(std::string_view)>;

  // Appends to `out`. indent 0: everything on one line; else so many spaces a level.
  explicit JsonWriter(std::string* out, int indent = 0);
  // Hands over pieces of some tens of KiB; the last one at Finish() or destruction.
  explicit JsonWriter(Sink sink, int indent = 0);
  JsonWriter(const JsonWriter&) = delete;
  JsonWriter& operator=(const JsonWriter&) = delete;
  ~JsonWriter();

  void BeginObject();
  void EndObject();
  void BeginArray();
  void EndArray();
  void Key(std::string_view key);

  void String(std::string_view value);
  void Int(int64_t value);
  void Uint(uint64_t value);
  void Double(double value);
  void Bool(bool value);
  void Null();
  // A piece of JSON that somebody else wrote.
  void Raw(std::string_view json);

  void Field(std::string_view key, std::string_view value) { Key(key), String(value); }
  void Field(std::string_view key, const char* value) { Key(key), String(value); }
  void Field(std::string_view key, bool value) { Key(key), Bool(value); }
  void Field(std::string_view key, double value) { Key(key), Double(value); }
  void Field(std::string_view key, int32_t value) { Key(key), Int(value); }
  void Field(std::string_view key, int64_t value) { Key(key), Int(value); }
  void Field(std::string_view key, uint32_t value) { Key(key), Uint(value); }
  void Field(std::string_view key, uint64_t value) { Key(key), Uint(value); }

  // Ends the text with a newline where it is indented, and hands over what is buffered.
  void Finish();

 private:
  void BeforeValue();
  void Open(char bracket);
  void Close(char bracket);
  void NewLine();
  void MaybeFlush();

  std::string buffer_;
  std::string* out_;
  Sink sink_;
  int indent_;
  bool after_key_ = false;
  std::vector<bool> has_values_;  // per open bracket
};

// `text` as a JSON string, quotes included.
std::string JsonQuoted(std::string_view text);

}  // namespace vramscope::util
