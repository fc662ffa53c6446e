// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "engine/analysis/leaves.h"
#include "engine/analysis/naming.h"
#include "engine/model/frames.h"
#include "engine/query/report.h"

namespace vramscope::engine {

// Sums leaves by category and by module, and how many of the blocks' bytes have names at all.
class NameTables {
 public:
  NameTables(const trace::Trace& trace, UserFrames& frames, Naming& naming)
      : trace_(trace), frames_(frames), naming_(naming) {}

  void Add(const Leaf& leaf);
  void MoveTo(Report& report);

 private:
  struct Sum {
    uint64_t bytes = 0;
    uint64_t count = 0;
  };
  struct ModuleSum {
    Sum all;
    uint32_t type = 0;
    std::array<uint64_t, kCategories> categories{};
  };
  bool HasPlace(const Leaf& leaf);

  const trace::Trace& trace_;
  UserFrames& frames_;
  Naming& naming_;
  std::map<trace::DeviceId, std::array<Sum, kCategories>> categories_;
  std::map<trace::DeviceId, std::unordered_map<uint32_t, ModuleSum>> modules_;  // by text
  uint64_t block_bytes_ = 0;
  uint64_t with_category_ = 0;
  uint64_t with_place_ = 0;
};

}  // namespace vramscope::engine
