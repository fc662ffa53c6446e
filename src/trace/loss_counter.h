// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "format/enums.h"
#include "trace/trace.h"

namespace vramscope::trace {

// Counts what is missing, by the names of format/losses.def.
class LossCounter {
 public:
  void Add(format::Loss loss, uint64_t count, uint64_t bytes = 0);
  // Losses of newer writers keep their row under the name that this version has for them.
  void AddRaw(uint64_t loss, uint64_t count, uint64_t bytes);
  std::vector<Loss> Rows() const;

 private:
  struct Sum {
    uint64_t count = 0;
    uint64_t bytes = 0;
  };
  std::map<uint64_t, Sum> sums_;
};

}  // namespace vramscope::trace
