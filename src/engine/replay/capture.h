// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/records.h"

namespace vramscope::engine {

// The live set at one instant, kept without a copy of it. Lives are numbered in order of
// allocation, so what was live then is: every life below `lives` that is live now, and those freed
// since. Only the latter are stored, so a new peak costs nothing but forgetting them.
struct Capture {
  struct FreedBlock {
    Block block;
    uint32_t space;
    int64_t free_ns;
  };
  struct FreedHolding {
    Holding holding;
    int64_t free_ns;
  };

  bool set = false;
  int64_t time_ns = 0;
  uint64_t lives = 0;              // 0 while not set: no life is below it
  size_t log_size = 0;             // entries of the slow log that count
  uint64_t version = 0;            // the device's version then: captures of one device
  std::vector<uint64_t> versions;  // of all devices: captures of processes and of the whole
  std::vector<FreedBlock> blocks;
  std::vector<FreedHolding> holdings;

  void Forget() {
    blocks.clear();
    holdings.clear();
  }
};

}  // namespace vramscope::engine
