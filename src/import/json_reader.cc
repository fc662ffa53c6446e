// SPDX-License-Identifier: Apache-2.0
#include "import/json_reader.h"

#include <fmt/core.h>

#include <cctype>

namespace vramscope::imports {

int JsonReader::Peek() {
  if (at_ == end_) {
    before_bytes_ += end_;
    at_ = end_ = 0;
    if (!status_.ok())
      return -1;
    const util::Result<size_t> bytes = stream_->Read(buffer_);
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
    status_ = util::Status::Error(
        fmt::format("{}, byte {}: it is no JSON: {}", path_, before_bytes_ + at_, what));
  }
  return Token::kEnd;
}

JsonReader::Token JsonReader::Close(char bracket) {
  if (open_.empty() || open_.back() != bracket)
    return Fail("a bracket closes what was not opened");
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
        return Fail("it is nested too deeply");
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
  Advance();
  for (;;) {
    const int c = Peek();
    if (c < 0) {
      Fail("it ends within a string");
      return;
    }
    Advance();
    if (c == '"')
      return;
    if (c == '\\')
      ReadEscape();
    else
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
  const std::optional<uint32_t> code = ReadHex();
  // Halves of pairs, rare in names, become U+FFFD each.
  const uint32_t known = !code || (*code >= 0xd800 && *code < 0xe000) ? 0xfffd : *code;
  if (known < 0x80) {
    Put(static_cast<char>(known));
  } else if (known < 0x800) {
    Put(static_cast<char>(0xc0 | known >> 6));
    Put(static_cast<char>(0x80 | (known & 0x3f)));
  } else {
    Put(static_cast<char>(0xe0 | known >> 12));
    Put(static_cast<char>(0x80 | (known >> 6 & 0x3f)));
    Put(static_cast<char>(0x80 | (known & 0x3f)));
  }
}

}  // namespace vramscope::imports
