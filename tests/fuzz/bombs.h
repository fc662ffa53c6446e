// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vramscope::fuzz {

// A finished recording of a few KiB that says very much: its tables are sound, and every row of
// them names the same long texts or deep stacks.
struct Bomb {
  std::string name;
  std::string bytes;
};

std::vector<Bomb> Bombs();

}  // namespace vramscope::fuzz
