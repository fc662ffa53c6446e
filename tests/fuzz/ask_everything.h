// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tables/recording.h"

namespace vramscope::fuzz {

// Asks every kind of question, and prints the answers in every form but pictures. Errors are fine;
// what the sanitizers see is not.
void AskEverything(const tables::Recording& recording);

// Opens a live directory, makes a finished recording of it, and asks that.
void AskLive(const std::string& directory);

// Writes the bytes to a file. Ends the process where that fails: a fuzzer that tests nothing is
// worse than none.
void WriteInput(const std::string& path, const uint8_t* data, size_t size);

// A directory of this process in memory-backed storage, where there is some.
std::string ScratchDirectory();

}  // namespace vramscope::fuzz
