// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/xla/hlo_text.h"
#include "util/status.h"

// What a compiled program's temporary memory holds at its peak, from XLA's dump of the program.
//
//   ...-buffer-assignment.txt   values of each allocation: bytes and offset
//   ...-live-range.txt          when each value lives, in instructions
//   ....txt                     the optimized HLO: names and places
//
// The texts are anybody's: nothing of them is believed without a bound.
namespace vramscope::trace {

struct XlaDumpTexts {
  std::string_view buffers, live_ranges, hlo;
};

struct XlaOperation {
  std::string instruction;
  uint64_t bytes = 0;
  HloInstruction hlo;
};

struct XlaPeak {
  uint64_t temp_bytes = 0;
  std::vector<XlaOperation> operations;  // largest first; together at most temp_bytes
};

// The program's temporary memory on the device: the sum of its preallocated allocations.
util::Result<uint64_t> XlaTemporaryBytes(std::string_view buffers);

// Values that share memory take turns, or one continues in the memory of another: at the peak each
// byte belongs to the value that was made last.
util::Result<XlaPeak> SplitXlaPeak(const XlaDumpTexts& dump, IsOwnFile is_own);

}  // namespace vramscope::trace
