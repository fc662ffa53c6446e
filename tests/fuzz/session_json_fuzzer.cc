// SPDX-License-Identifier: Apache-2.0
// The input is the session.json of a recording that `run` left behind.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trace/file/live_directory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto session = vramscope::trace::ParseSessionJson(text);
  // A byte of JSON is at most three of UTF-8 (\u takes six): what comes out is bounded by what went
  // in.
  size_t bytes = session.name.size() + session.version.size();
  for (const auto& word : session.command)
    bytes += word.size();
  for (const auto& [key, value] : session.notes)
    bytes += key.size() + value.size();
  if (bytes > 3 * size)
    std::abort();
  return 0;
}
