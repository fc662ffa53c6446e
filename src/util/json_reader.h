// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "util/file.h"
#include "util/status.h"

namespace vramscope::util {

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
  // Of a key, a string, a number or a word; holds until the next call.
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
  uint64_t before_bytes_ = 0;  // of what stood in the buffer before
  std::string open_;           // '{' and '['
  bool in_value_ = false;      // behind a key
  std::string text_;
  uint32_t high_half_ = 0;  // read, until what is behind it is
  Status status_;
};

}  // namespace vramscope::util
