// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <cctype>
#include <utility>

#include "util/json.h"

namespace vramscope::util {
namespace {

// Characters beyond 16 bits are escaped as two halves (RFC 8259, section 7).
constexpr uint32_t kHighHalves = 0xd800, kLowHalves = 0xdc00, kBehindHalves = 0xe000;
constexpr uint32_t kReplacementCode = 0xfffd;  // of a half alone

bool IsHighHalf(uint32_t code) {
  return code >= kHighHalves && code < kLowHalves;
}

bool IsLowHalf(uint32_t code) {
  return code >= kLowHalves && code < kBehindHalves;
}

}  // namespace

int JsonReader::Peek() {
  if (at_ == end_) {
    before_bytes_ += end_;
    at_ = end_ = 0;
    if (!status_.ok())
      return -1;
    const Result<size_t> bytes = stream_->Read(buffer_);
    if (!bytes) {
      status_ = bytes.status();
      return -1;
    }
    end_ = *bytes;
    if (end_ == 0)
      return -1;
  }
  return static_cast<unsigned char>(buffer_[at_]);
}

// Commas and colons say nothing that is not known without them.
int JsonReader::PeekPastBlanks() {
  for (;;) {
    const int c = Peek();
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t' && c != ',' && c != ':')
      return c;
    Advance();
  }
}

JsonReader::Token JsonReader::Fail(const char* what) {
  if (status_.ok()) {
    status_ = Status::Error(
        fmt::format("{}, byte {}: is not JSON: {}", path_, before_bytes_ + at_, what));
  }
  return Token::kEnd;
}

JsonReader::Token JsonReader::Close(char bracket) {
  if (open_.empty() || open_.back() != bracket)
    return Fail("a closing bracket has no opening bracket");
  Advance();
  open_.pop_back();
  in_value_ = false;
  return bracket == '{' ? Token::kObjectEnd : Token::kArrayEnd;
}

JsonReader::Token JsonReader::Next() {
  const int c = PeekPastBlanks();
  const bool wants_key = !open_.empty() && open_.back() == '{' && !in_value_;
  switch (c) {
    case -1:
      return Token::kEnd;
    case '}':
      return Close('{');
    case ']':
      return Close('[');
    case '"':
      ReadString();
      in_value_ = wants_key;
      return !status_.ok() ? Token::kEnd : wants_key ? Token::kKey : Token::kString;
    case '{':
    case '[':
      if (wants_key)
        return Fail("a name of a value is missing");
      if (open_.size() == kMaxDepth)
        return Fail("too many nested brackets");
      Advance();
      open_ += static_cast<char>(c);
      in_value_ = false;
      return c == '{' ? Token::kObject : Token::kArray;
    default:
      break;
  }
  if (wants_key)
    return Fail("a name of a value is missing");
  ReadBare();
  in_value_ = false;
  if (text_.empty())
    return Fail("an unexpected character");
  const bool is_number = text_[0] == '-' || std::isdigit(static_cast<unsigned char>(text_[0])) != 0;
  return is_number ? Token::kNumber : Token::kWord;
}

void JsonReader::Skip(Token token) {
  if (token != Token::kObject && token != Token::kArray)
    return;
  const size_t outside = open_.size() - 1;
  while (open_.size() > outside && Next() != Token::kEnd) {
  }
}

void JsonReader::Put(char c) {
  if (text_.size() < kMaxStringBytes)
    text_ += c;
}

void JsonReader::PutCharacter(uint32_t character) {
  if (character < 0x80) {
    Put(static_cast<char>(character));
    return;
  }
  const int more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  constexpr uint32_t kLeads[] = {0, 0xc0, 0xe0, 0xf0};
  Put(static_cast<char>(kLeads[more] | character >> (6 * more)));
  for (int i = more; i-- > 0;)
    Put(static_cast<char>(0x80 | (character >> (6 * i) & 0x3f)));
}

void JsonReader::PutLoneHalf() {
  if (std::exchange(high_half_, 0) != 0)
    PutCharacter(kReplacementCode);
}

void JsonReader::ReadBare() {
  text_.clear();
  for (int c = Peek(); c == '-' || c == '+' || c == '.' || (c >= 0 && std::isalnum(c) != 0);
       c = Peek()) {
    Put(static_cast<char>(c));
    Advance();
  }
}

void JsonReader::ReadString() {
  text_.clear();
  high_half_ = 0;
  Advance();
  for (;;) {
    const int c = Peek();
    if (c < 0) {
      Fail("the file ends within a string");
      return;
    }
    Advance();
    if (c == '\\') {
      ReadEscape();
      continue;
    }
    PutLoneHalf();
    if (c == '"')
      return;
    Put(static_cast<char>(c));
  }
}

std::optional<uint32_t> JsonReader::ReadHex() {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const int c = Peek();
    if (c < 0 || std::isxdigit(c) == 0)
      return std::nullopt;
    Advance();
    value = value * 16 +
            static_cast<uint32_t>(std::isdigit(c) != 0 ? c - '0' : std::tolower(c) - 'a' + 10);
  }
  return value;
}

void JsonReader::ReadEscape() {
  const int c = Peek();
  if (c < 0)
    return;
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  const size_t simple = kNames.find(static_cast<char>(c));
  if (c != 'u')
    PutLoneHalf();
  if (simple != std::string_view::npos) {
    Advance();
    Put(kValues[simple]);
    return;
  }
  if (c != 'u') {
    Put('\\');  // a path of Windows
    return;
  }
  Advance();
  const uint32_t code = ReadHex().value_or(kReplacementCode);
  if (const uint32_t high = std::exchange(high_half_, 0); high != 0) {
    if (IsLowHalf(code)) {
      PutCharacter(0x10000 + ((high - kHighHalves) << 10) + (code - kLowHalves));
      return;
    }
    PutCharacter(kReplacementCode);
  }
  if (IsHighHalf(code))
    high_half_ = code;
  else
    PutCharacter(IsLowHalf(code) ? kReplacementCode : code);
}

}  // namespace vramscope::util
