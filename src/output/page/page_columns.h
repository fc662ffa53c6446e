// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "util/json_writer.h"

// Tables of the page's data as columns of numbers.
namespace vramscope::output {

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
