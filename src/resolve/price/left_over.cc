// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/left_over.h"

#include <algorithm>

#include "resolve/price/series.h"

namespace vramscope::resolve::price {

using format::Part;

int64_t LeftOver::TakeBackRestored(const When& sample, int64_t bytes) {
  int64_t taken = 0;
  for (uint32_t i = 0; i < book_.rows().size() && taken < bytes; ++i) {
    const Book::Row& row = book_.row(i);
    if (row.counter.part != Part::kRmInternal || row.bytes <= 0 || !restored_[row.account])
      continue;
    const int64_t part = std::min(bytes - taken, row.bytes);
    book_.Change(i, {sample.time_ns, restored_[row.account]->begin_ns, sample.end_ns}, -part);
    taken += part;
  }
  // Only the first sample after a restore counts.
  std::fill(restored_.begin(), restored_.end(), std::nullopt);
  return taken;
}

void LeftOver::OnEnd(uint32_t process) {
  const int64_t bytes = book_.WithRm(process) - book_.TotalOf(process);
  if (bytes <= 0)
    return;
  ended_ = input_.processes[process].end;
  ended_bytes_ += bytes;
}

std::optional<StepRef> LeftOver::Leave(const When& sample, int64_t bytes) {
  if (!ended_ || sample.begin_ns < ended_->end_ns)
    return std::nullopt;
  const When when = *std::exchange(ended_, std::nullopt);
  const int64_t most = std::exchange(ended_bytes_, 0);
  if (bytes <= 0 || bytes > most)
    return std::nullopt;
  uint32_t heir = kNone;
  for (uint32_t process = 0; process < input_.processes.size() && heir == kNone; ++process) {
    const std::optional<When>& end = input_.processes[process].end;
    if (book_.TotalOf(process) > 0 && (!end || end->time_ns > sample.time_ns))
      heir = process;
  }
  if (heir == kNone)
    return std::nullopt;
  Counter counter;
  counter.part = Part::kRmInternal;
  return book_.Change(book_.Add(std::move(counter), heir), when, bytes);
}

bool LeftOver::HasContext(uint32_t process) const {
  return std::any_of(book_.rows().begin(), book_.rows().end(), [&](const Book::Row& row) {
    return row.account == process && row.counter.part == Part::kContext && row.of_primary &&
           row.bytes > 0;
  });
}

// Takes from the newest rows first, then the context, and last the kernel module's memory for it.
int64_t LeftOver::TakeBackParked(const When& sample, int64_t bytes) {
  int64_t taken = 0;
  const auto take = [&](auto matches) {
    for (auto i = static_cast<uint32_t>(book_.rows().size()); i-- > 0 && taken < bytes;) {
      const Book::Row& row = book_.row(i);
      if (row.account >= parked_.size() || !parked_[row.account] || row.bytes <= 0 ||
          !matches(row.counter.part))
        continue;
      const int64_t part = std::min(bytes - taken, row.bytes);
      book_.Change(i, {sample.time_ns, parked_[row.account]->begin_ns, sample.end_ns}, -part);
      taken += part;
    }
  };
  take([](Part part) { return IsDriverPart(part) && part != Part::kContext; });
  take([](Part part) { return part == Part::kContext; });
  take([](Part part) { return part == Part::kRmInternal; });
  return taken;
}

bool Kept::Has(uint32_t row) const {
  return std::any_of(states_.begin(), states_.end(),
                     [&](const State& state) { return state.row == row; });
}

std::vector<StepRef> Kept::OnQuiet(const When& sample, int64_t bytes) {
  std::vector<uint32_t> unpriced;
  for (uint32_t process = 0; process < states_.size(); ++process) {
    const State& state = states_[process];
    // The memory of a process that began late is unknown.
    if (state.idle && state.row == kNone && state.idle->end_ns <= sample.begin_ns &&
        input_.processes[process].late_ns == kNever)
      unpriced.push_back(process);
  }
  // A driver keeps the same for each process.
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
