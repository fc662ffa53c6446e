// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vramscope::trace {

// What the launcher says about the session in session.json. Every part is optional.
struct SessionJson {
  std::string name;
  std::string version;
  std::vector<std::string> command;
  int64_t start_wall_ns = 0;
  std::vector<std::pair<std::string, std::string>> notes;  // all other keys, their values as text
};

// Reads as much of `text` as is JSON: a damaged file loses what comes after the damage, no more.
SessionJson ParseSessionJson(std::string_view text);

}  // namespace vramscope::trace
