// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "output/plot/canvas.h"

namespace vramscope::output {

// The colours of a figure's names: those of the HTML page's categories for names that mean one
// ("Parameters", "parameter"), hues that no category of the figure has for the others.
class Palette {
 public:
  // In the order in which names without a colour of their own are to get one.
  explicit Palette(const std::vector<std::string>& names);
  Colour Of(const std::string& name) const;

 private:
  std::map<std::string, Colour> colours_;
};

// Where a name belongs in a stack, from the bottom up: the order of the HTML page's timeline. Names
// without a colour of their own share a rank, below what nobody can name or use.
double StackRank(const std::string& name);

// For lines: the hue of the n-th.
Colour HueOf(size_t index);

// Black or white, whichever can be read on `ground`.
Colour InkOn(Colour ground);

}  // namespace vramscope::output
