// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "output/terminal.h"
#include "top/model.h"

namespace vramscope::cli {

// What the user has chosen to see.
struct TopView {
  TopOrder order = TopOrder::kBytes;
  std::pair<uint32_t, std::string> selected;  // pid, device
  bool detail = false;                        // of the selected process alone
  bool help = false;
  std::string message;  // above the keys
  size_t rows = 0;      // of the terminal; 0: plain text of any length, without keys
};

// The lines of a screen, none wider than style.columns. The processes are in the order to show. On
// a terminal there are exactly `rows`.
std::vector<std::string> TopScreen(const TopModel& model,
                                   const TopView& view,
                                   const output::Style& style);

}  // namespace vramscope::cli
