// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "util/json.h"

// What the writers of JSON have in common.
namespace vramscope::output {

// An array of objects, one line an item: there can be thousands, which people grep and diff.
// `write` fills in one object.
template <class T, class Write>
void WriteItems(util::JsonWriter& json, const std::vector<T>& items, const Write& write) {
  json.BeginArray();
  for (const T& item : items) {
    std::string line;
    util::JsonWriter object(&line);
    object.BeginObject();
    write(item, object);
    object.EndObject();
    json.Raw(line);
  }
  json.EndArray();
}

template <class T, class Write>
void WriteList(util::JsonWriter& json,
               const char* key,
               const std::vector<T>& items,
               const Write& write) {
  json.Key(key);
  WriteItems(json, items, write);
}

template <class Number>
void WriteNumber(util::JsonWriter& json, Number value) {
  if constexpr (std::is_signed_v<Number>)
    json.Int(value);
  else
    json.Uint(value);
}

template <class Number>
void NumberOrNull(util::JsonWriter& json, const char* key, const std::optional<Number>& value) {
  json.Key(key);
  value ? WriteNumber(json, *value) : json.Null();
}

// An array of a few numbers that differ in what they say.
template <class... Numbers>
void WriteTuple(util::JsonWriter& json, Numbers... values) {
  json.BeginArray();
  (WriteNumber(json, values), ...);
  json.EndArray();
}

template <class Number>
void WriteNumbers(util::JsonWriter& json, const std::vector<Number>& values) {
  json.BeginArray();
  for (const Number value : values)
    WriteNumber(json, value);
  json.EndArray();
}

template <class Number>
void NumberList(util::JsonWriter& json, const char* key, const std::vector<Number>& values) {
  json.Key(key);
  WriteNumbers(json, values);
}

template <class Number>
void NumberLists(util::JsonWriter& json,
                 const char* key,
                 const std::vector<std::vector<Number>>& lists) {
  json.Key(key);
  json.BeginArray();
  for (const std::vector<Number>& values : lists)
    WriteNumbers(json, values);
  json.EndArray();
}

inline void TextOrNull(util::JsonWriter& json, std::string_view key, std::string_view text) {
  json.Key(key);
  text.empty() ? json.Null() : json.String(text);
}

template <class Texts>
void WriteTexts(util::JsonWriter& json, const Texts& texts) {
  json.BeginArray();
  for (const auto& text : texts)
    json.String(text);
  json.EndArray();
}

template <class Texts>
void TextList(util::JsonWriter& json, const char* key, const Texts& texts) {
  json.Key(key);
  WriteTexts(json, texts);
}

// The text of what `write` writes: indented, one line an item, ended by a newline.
template <class Write>
std::string JsonText(const Write& write) {
  std::string text;
  util::JsonWriter json(&text, 1);
  write(json);
  json.Finish();
  return text;
}

// Tables as columns of numbers, for the page.
template <class Items, class Value>
void WriteColumn(util::JsonWriter& json, const char* key, const Items& items, const Value& value) {
  json.Key(key);
  json.BeginArray();
  for (const auto& item : items)
    json.Int(static_cast<int64_t>(value(item)));
  json.EndArray();
}

// Each number less the one before it: neighbours in time share digits, and deltas are short.
template <class Items, class Value>
void WriteDeltas(util::JsonWriter& json, const char* key, const Items& items, const Value& value) {
  int64_t before = 0;
  WriteColumn(json, key, items, [&](const auto& item) {
    const int64_t now = value(item);
    return now - std::exchange(before, now);
  });
}

}  // namespace vramscope::output
