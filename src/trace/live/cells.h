// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

// The cells of a notebook, which IPython compiles under file names that say nothing. The Python
// package writes PID.cells beside the live file (docs/FORMAT.md).
namespace vramscope::trace {

class Cells {
 public:
  struct Cell {
    uint64_t number = 0;
    std::string text;
    std::string name() const { return "In[" + std::to_string(number) + "]"; }
  };

  // What all such files of the directory say; what is damaged or too large is left out.
  static Cells Read(const std::string& directory);
  // As much of a file's text as is right: format::kCellsStart, then "NUMBER BYTES FILE\n", BYTES of
  // source, "\n", and so on.
  // Of a file name that was said before the later one counts.
  void Parse(std::string_view text);

  bool empty() const { return cells_.empty(); }
  // nullptr: no cell was compiled under that name.
  const Cell* Find(std::string_view file) const;

 private:
  std::unordered_map<std::string, Cell> cells_;  // by the name that it was compiled under
};

}  // namespace vramscope::trace
