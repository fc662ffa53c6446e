// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "util/status.h"

// The text of an optimized HLO module, as XLA dumps it: names and places of instructions.
namespace vramscope::trace {

struct HloPlace {
  std::string file, function;
  uint32_t line = 0;  // 0: none
};

struct HloInstruction {
  std::string op_name;
  HloPlace place;
  uint32_t fused = 0;  // operations of its fusion; 0: no fusion
  bool rematerialized = false;
};

// Lines of a text. The last one may be cut off: it counts only with its end.
class WholeLines {
 public:
  explicit WholeLines(std::string_view text) : text_(text) {}
  bool Next(std::string_view* line) {
    const size_t end = text_.find('\n');
    if (end == std::string_view::npos)
      return false;
    *line = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return true;
  }

 private:
  std::string_view text_;
};

// Takes `begin` from the start of `text`; false, and nothing is taken, where it is not there.
bool TakePrefix(std::string_view begin, std::string_view* text);
// Takes a decimal number.
bool TakeCount(uint64_t* number, std::string_view* text);

// Whether a file of source code is the user's own.
using IsOwnFile = bool (*)(std::string_view file);

// The name of the module; "" if the text is not HLO.
std::string_view HloModuleName(std::string_view text);

// The instructions `wanted` that the text has. Their place is the innermost frame of the user's
// own code, otherwise the innermost of all. An error where the text is no whole module.
util::Result<std::unordered_map<std::string_view, HloInstruction>> ReadHlo(
    std::string_view text,
    const std::unordered_set<std::string_view>& wanted,
    IsOwnFile is_own);

}  // namespace vramscope::trace
