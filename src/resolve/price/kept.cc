// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/kept.h"

#include <algorithm>

#include "resolve/price/series.h"

namespace vramscope::resolve::price {

bool Kept::Has(uint32_t row) const {
  return std::any_of(states_.begin(), states_.end(),
                     [&](const State& state) { return state.row == row; });
}

std::vector<StepRef> Kept::OnQuiet(const When& sample, int64_t bytes) {
  std::vector<uint32_t> unpriced;
  for (uint32_t process = 0; process < states_.size(); ++process) {
    const State& state = states_[process];
    // Of a process that began late nobody knows what it has.
    if (state.idle && state.row == kNone && state.idle->end_ns <= sample.begin_ns &&
        input_.processes[process].late_ns == kNever)
      unpriced.push_back(process);
  }
  // One driver keeps the same for each.
  const auto count = static_cast<int64_t>(unpriced.size());
  if (count == 0 || bytes < count || bytes > count * kLargestRm)
    return {};
  std::vector<StepRef> steps;
  for (const uint32_t process : unpriced) {
    Counter counter;
    counter.part = format::Part::kRmInternal;
    states_[process].row = book_.Add(std::move(counter), process);
    const int64_t share = bytes / count + (process == unpriced.front() ? bytes % count : 0);
    steps.push_back(book_.Change(states_[process].row, *states_[process].idle, share));
  }
  return steps;
}

}  // namespace vramscope::resolve::price
