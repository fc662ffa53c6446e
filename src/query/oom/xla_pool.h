// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "query/oom/refusals.h"
#include "tables/recording.h"

namespace vramscope::query {

// What XLA's own pool held when it refused a request, by its own word.
struct XlaPool {
  struct Arrays {
    std::string shape;  // "float32[4096,1024]", with what of it is on the device
    uint64_t bytes = 0;
    uint64_t count = 0;
  };
  uint64_t limit_bytes = 0;  // 0: it is none of XLA's, or XLA does not say
  uint64_t in_use_bytes = 0;
  uint64_t largest_free_bytes = 0;
  std::vector<Arrays> arrays;  // that the program holds, largest first

  uint64_t free_bytes() const {
    return limit_bytes > in_use_bytes ? limit_bytes - in_use_bytes : 0;
  }
};

XlaPool FindXlaPool(const tables::Recording& recording, const Refusal& refusal);

// Why a request was refused by such a pool, as a sentence.
std::string CauseInXlaPool(const XlaPool& pool, uint64_t requested_bytes);

}  // namespace vramscope::query
