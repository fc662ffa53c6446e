// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

// How the lines of a screen are shared out among the sections of a report:
//
//   1. What a section takes is its entries and two lines more, its head and an empty one; a list
//      that is cut has one more line, which says so.
//   2. All lines are shared out by weight. A section that needs less than its share gives the rest
//      to the others.
//   3. A section whose share has no room for its fewest entries is left out, the lightest first,
//      and the others have its lines.
namespace vramscope::output {

struct Section {
  double weight = 1;
  size_t entries = 0;  // that there are; 0: no such section
  size_t fewest = 1;   // with less than these it says too little to be there
  size_t lines_per_entry = 1;
  size_t all = 0;  // with fewer entries than these the section has a "(n more)" line
};

inline constexpr size_t kSectionHeadLines = 2;

// The entries that each section shows. `lines` 0: no limit, as where nobody looks at a screen.
std::vector<size_t> ShareLines(size_t lines, const std::vector<Section>& sections);

}  // namespace vramscope::output
