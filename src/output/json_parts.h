// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "util/json_writer.h"

// What the writers of JSON have in common.
namespace vramscope::output {

// An array of objects under `key`, one line an item: there can be thousands, which people grep and
// diff. `write` fills in one object.
template <class T, class Write>
void WriteList(util::JsonWriter& json,
               const char* key,
               const std::vector<T>& items,
               const Write& write) {
  json.Key(key);
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

template <class T>
void NumberOrNull(util::JsonWriter& json, const char* key, const std::optional<T>& value) {
  json.Key(key);
  if (!value)
    json.Null();
  else if constexpr (std::is_signed_v<T>)
    json.Int(*value);
  else
    json.Uint(*value);
}

inline void TextOrNull(util::JsonWriter& json, const char* key, std::string_view text) {
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

}  // namespace vramscope::output
