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

// Ends the process where `what` (to open an input, a question about it) took more than 2 s of
// processor time, as a finding. libFuzzer's own limit is one of wall time, which a busy machine
// makes no measure.
class TimeLimit {
 public:
  explicit TimeLimit(std::string what);
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;
  ~TimeLimit();

 private:
  const std::string what_;
  const double began_;
};

}  // namespace vramscope::fuzz
