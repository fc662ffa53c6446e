// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "util/json_writer.h"

namespace vramscope::report {

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

}  // namespace vramscope::report
