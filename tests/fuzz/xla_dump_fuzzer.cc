// SPDX-License-Identifier: Apache-2.0
// The input is XLA's dump of a program: its three texts, with a form feed between them.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trace/xla/peak_split.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view left(reinterpret_cast<const char*>(data), size);
  std::string_view texts[3];
  for (std::string_view& text : texts) {
    text = left.substr(0, left.find('\f'));
    left.remove_prefix(text.size() < left.size() ? text.size() + 1 : text.size());
  }
  const auto peak = vramscope::trace::SplitXlaPeak(
      {texts[0], texts[1], texts[2]},
      [](std::string_view file) { return file.find("/site-packages/") == std::string_view::npos; });
  if (!peak.ok())
    return 0;
  uint64_t sum = 0;
  for (const auto& operation : peak->operations)
    sum += operation.bytes;
  if (sum > peak->temp_bytes)
    std::abort();
  return 0;
}
