// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "util/status.h"

namespace vramscope::query {

// Larger numbers are not sizes.
inline constexpr uint64_t kLargestSize = uint64_t{1} << 40;

// A number of the command lines, such as that of `--batch 4`.
struct CommandNumber {
  std::string name;              // "batch"; "argument 2"
  std::vector<uint64_t> values;  // of each command
};

// The numbers that differ between the commands of one program.
std::vector<CommandNumber> DifferingNumbers(const std::vector<std::string>& commands);

// The one that differs. An error names those that do, or says that there is none.
util::Result<CommandNumber> FindSize(const std::vector<std::string>& commands);

}  // namespace vramscope::query
