// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "util/file.h"
#include "util/status.h"

namespace vramscope::util {

// Writes JSON as it goes, so that an export of any size needs no tree in memory. Integers are
// written exactly, strings always as valid UTF-8 (bytes that are not become U+FFFD), numbers that
// JSON cannot say (NaN, infinity) as null. Misuse (a value without a key in an object) is a
// programming mistake and is not checked.
class JsonWriter {
 public:
  using Sink = std::function<void(std::string_view)>;

  // Appends to `out`. indent 0: everything on one line; otherwise this many spaces a level.
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
  // Inserts a piece of JSON unchanged.
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

// Reads JSON piece by piece: a trace of gigabytes takes the memory of its longest string, which is
// cut at kMaxStringBytes. Profilers write what is nearly JSON (names with lone backslashes, NaN,
// an array that is cut off): what can be understood is.
class JsonReader {
 public:
  static constexpr size_t kMaxStringBytes = size_t{64} << 10;
  static constexpr size_t kMaxDepth = 256;

  enum class Token : uint8_t {
    kObject,
    kObjectEnd,
    kArray,
    kArrayEnd,
    kKey,
    kString,
    kNumber,
    kWord,  // true, false, null, NaN
    kEnd,   // of the input, or an error: see status()
  };

  JsonReader(std::unique_ptr<ByteStream> stream, std::string path)
      : stream_(std::move(stream)), path_(std::move(path)) {}

  Token Next();
  // The text of a key, a string, a number or a word; valid until the next call.
  std::string_view text() const { return text_; }
  // Reads over the value whose first token Next() gave last.
  void Skip(Token token);
  // Objects and arrays that are open.
  size_t depth() const { return open_.size(); }
  const Status& status() const { return status_; }

 private:
  int Peek();
  void Advance() { ++at_; }
  int PeekPastBlanks();
  Token Fail(const char* what);
  Token Close(char bracket);
  void ReadString();
  void ReadBare();
  void Put(char c);
  void PutCharacter(uint32_t character);
  void PutLoneHalf();
  void ReadEscape();
  std::optional<uint32_t> ReadHex();

  std::unique_ptr<ByteStream> stream_;
  std::string path_;
  std::string buffer_ = std::string(ByteStream::kPieceBytes, '\0');
  size_t at_ = 0, end_ = 0;
  uint64_t before_bytes_ = 0;  // bytes before the buffer's first one
  std::string open_;           // '{' and '['
  bool in_value_ = false;      // behind a key
  std::string text_;
  uint32_t high_half_ = 0;  // first half of a surrogate pair, until the second is read
  Status status_;
};

}  // namespace vramscope::util
