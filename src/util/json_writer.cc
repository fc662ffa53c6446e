// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <utility>

#include "util/json.h"
#include "util/text.h"

namespace vramscope::util {
namespace {

constexpr size_t kFlushBytes = 32 * 1024;

void AppendQuoted(std::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x80) {
      const size_t length = Utf8SequenceBytes(text.substr(i));
      if (length == 0) {
        out->append("\xef\xbf\xbd");
        ++i;
      } else {
        out->append(text.substr(i, length));
        i += length;
      }
      continue;
    }
    ++i;
    switch (byte) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      default:
        if (byte < 0x20 || byte == 0x7f) {
          out->append("\\u00");
          out->push_back(kHex[byte >> 4]);
          out->push_back(kHex[byte & 15]);
        } else {
          out->push_back(static_cast<char>(byte));
        }
    }
  }
  out->push_back('"');
}

template <class Number>
void AppendNumber(Number value, std::string* out) {
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  out->append(digits, end.ptr);
}

}  // namespace

JsonWriter::JsonWriter(std::string* out, int indent) : out_(out), indent_(indent) {}
JsonWriter::JsonWriter(Sink sink, int indent)
    : out_(&buffer_), sink_(std::move(sink)), indent_(indent) {}
JsonWriter::~JsonWriter() {
  if (sink_ && !buffer_.empty())
    sink_(buffer_);
}

void JsonWriter::Finish() {
  if (indent_ > 0)
    out_->push_back('\n');
  if (sink_ && !buffer_.empty()) {
    sink_(buffer_);
    buffer_.clear();
  }
}

void JsonWriter::MaybeFlush() {
  if (sink_ && buffer_.size() >= kFlushBytes) {
    sink_(buffer_);
    buffer_.clear();
  }
}

void JsonWriter::NewLine() {
  if (indent_ <= 0)
    return;
  out_->push_back('\n');
  out_->append(has_values_.size() * static_cast<size_t>(indent_), ' ');
}

void JsonWriter::BeforeValue() {
  MaybeFlush();
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (has_values_.empty())
    return;
  if (has_values_.back())
    out_->push_back(',');
  has_values_.back() = true;
  NewLine();
}

void JsonWriter::Open(char bracket) {
  BeforeValue();
  out_->push_back(bracket);
  has_values_.push_back(false);
}

void JsonWriter::Close(char bracket) {
  const bool had_values = has_values_.back();
  has_values_.pop_back();
  if (had_values)
    NewLine();
  out_->push_back(bracket);
}

void JsonWriter::BeginObject() {
  Open('{');
}
void JsonWriter::EndObject() {
  Close('}');
}
void JsonWriter::BeginArray() {
  Open('[');
}
void JsonWriter::EndArray() {
  Close(']');
}

void JsonWriter::Key(std::string_view key) {
  BeforeValue();
  AppendQuoted(key, out_);
  out_->push_back(':');
  if (indent_ > 0)
    out_->push_back(' ');
  after_key_ = true;
}

void JsonWriter::String(std::string_view value) {
  BeforeValue();
  AppendQuoted(value, out_);
}

void JsonWriter::Int(int64_t value) {
  BeforeValue();
  AppendNumber(value, out_);
}

void JsonWriter::Uint(uint64_t value) {
  BeforeValue();
  AppendNumber(value, out_);
}

void JsonWriter::Double(double value) {
  if (!std::isfinite(value))
    return Null();
  BeforeValue();
  AppendNumber(value, out_);
}

void JsonWriter::Bool(bool value) {
  BeforeValue();
  out_->append(value ? "true" : "false");
}

void JsonWriter::Null() {
  BeforeValue();
  out_->append("null");
}

void JsonWriter::Raw(std::string_view json) {
  BeforeValue();
  out_->append(json);
}

std::string JsonQuoted(std::string_view text) {
  std::string out;
  AppendQuoted(text, &out);
  return out;
}

}  // namespace vramscope::util
