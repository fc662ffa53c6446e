// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/enums.h"

namespace vramscope::trace {

// Maps an instruction of a Python code object to its source line. Decodes the table that CPython
// keeps in the code object, in the form of the version that wrote it.
class PythonLineTable {
 public:
  PythonLineTable() = default;
  // A damaged or cut table answers for what it still covers.
  PythonLineTable(format::LineTableKind kind, uint32_t first_line, std::span<const uint8_t> table);

  // The line of the instruction at `byte_offset` of the bytecode; 0 if it has none. Without a
  // table, the code's first line.
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

// Lines of source files, read from disk when first asked for. Thread-safe.
class SourceLines {
 public:
  // Without its line end; "" if the file or line does not exist. Valid as long as this object.
  std::string_view Line(const std::string& path, uint32_t line) const;
  // The text of what no file has.
  void Add(const std::string& path, std::string text);
  // From now on no file is read.
  void Close() { is_open_ = false; }

 private:
  struct File {
    std::string text;
    std::vector<size_t> line_starts;
    void Fill(std::string with);
  };
  bool is_open_ = true;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, File> files_;
};

// The cells of a notebook, which IPython compiles under file names that say nothing. The Python
// package writes PID.cells beside the live file (docs/FORMAT.md).

class Cells {
 public:
  struct Cell {
    uint64_t number = 0;
    std::string text;
    std::string name() const { return "In[" + std::to_string(number) + "]"; }
  };

  // Reads all such files of the directory; damaged or too large parts are left out.
  static Cells Read(const std::string& directory);
  // As much of a file's text as is right: format::kCellsStart, then "NUMBER BYTES FILE\n", BYTES of
  // source, "\n", and so on. If a file name occurs twice, the later one counts.
  void Parse(std::string_view text);

  bool empty() const { return cells_.empty(); }
  // nullptr: no cell was compiled under that name.
  const Cell* Find(std::string_view file) const;

 private:
  std::unordered_map<std::string, Cell> cells_;  // by the name that it was compiled under
};

}  // namespace vramscope::trace
