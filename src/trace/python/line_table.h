// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/enums.h"

namespace vramscope::trace {

// Which source line an instruction of a Python code object stands on. Decodes the table that
// CPython keeps in the code object, in the form of whichever version wrote it.
class PythonLineTable {
 public:
  PythonLineTable() = default;
  // A damaged or cut table answers for what it still covers.
  PythonLineTable(format::LineTableKind kind, uint32_t first_line, std::span<const uint8_t> table);

  // The line of the instruction at `byte_offset` of the bytecode; 0 where it has none. Where there
  // is no table, the code's first line.
  uint32_t LineAt(uint64_t byte_offset) const;

 private:
  struct Range {
    uint64_t end;  // first byte offset after it
    uint32_t line;
  };
  void Append(uint64_t end, int64_t line);
  void DecodeLnotab(std::span<const uint8_t> table);
  void DecodePep626(std::span<const uint8_t> table);
  void DecodeLocations(std::span<const uint8_t> table);

  format::LineTableKind kind_ = format::LineTableKind::kNone;
  uint32_t first_line_ = 0;
  std::vector<Range> ranges_;  // ascending, without gaps
};

}  // namespace vramscope::trace
