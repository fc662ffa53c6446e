// SPDX-License-Identifier: Apache-2.0
// The input is a keyword dictionary as people write it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "query/keywords/keyword_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto dictionaries = vramscope::query::ParseKeywords(text, "keywords.toml");
  // An error is one line that begins with the file.
  if (!dictionaries.ok()) {
    const std::string message(dictionaries.status().message());
    if (message.rfind("keywords.toml", 0) != 0 || message.find('\n') != std::string::npos)
      std::abort();
  }
  return 0;
}
