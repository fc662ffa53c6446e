// SPDX-License-Identifier: Apache-2.0
#include "trace/loss_counter.h"

namespace vramscope::trace {

void LossCounter::Add(format::Loss loss, uint64_t count, uint64_t bytes) {
  AddRaw(static_cast<uint64_t>(loss), count, bytes);
}

void LossCounter::AddRaw(uint64_t loss, uint64_t count, uint64_t bytes) {
  if (count == 0 && bytes == 0)
    return;
  Sum& sum = sums_[loss];
  sum.count += count;
  sum.bytes += bytes;
}

std::vector<Loss> LossCounter::Rows() const {
  std::vector<Loss> rows;
  for (const auto& [loss, sum] : sums_) {
    rows.push_back({format::LossName(loss), sum.count, sum.bytes});
  }
  return rows;
}

}  // namespace vramscope::trace
