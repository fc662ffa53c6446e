// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace vramscope::fuzz {

// Writes the bytes to a file. Ends the process where that fails: a fuzzer that tests nothing is
// worse than none.
void WriteInput(const std::string& path, const uint8_t* data, size_t size);

// A directory of this process in memory-backed storage, where there is some.
std::string ScratchDirectory();

}  // namespace vramscope::fuzz
