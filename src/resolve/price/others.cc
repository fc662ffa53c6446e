// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/others.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "resolve/price/series.h"

namespace vramscope::resolve::price {

Others::Others(const DeviceInput& input, Book* book, Figures* figures)
    : input_(input), book_(*book), figures_(*figures), figures_of_(input.processes.size()) {
  for (size_t i = 0; i < input.figures.size(); ++i) {
    const ProcessSample& figure = input.figures[i];
    if (figure.process < figures_of_.size())
      figures_of_[figure.process].push_back(i);
    are_listed_ |= figure.process == kNone && figure.used_bytes > kNearlyNothing;
  }
}

void Others::Change(const When& when, int64_t bytes) {
  if (row_ == kNone) {
    Counter counter;
    counter.part = format::Part::kOtherProcesses;
    row_ = book_.Add(std::move(counter), kNone);
    figures_.OthersAre(row_);
  }
  if (bytes != 0)
    book_.Change(row_, when, bytes);
}

// Whether NVML's figures next to that time have the process. Where they do not, it may have been
// checkpointed by somebody else: then the memory that went is its own.
bool Others::IsListedAround(uint32_t process, int64_t time_ns) const {
  const std::vector<size_t>& figures = figures_of_[process];
  const auto after = std::partition_point(figures.begin(), figures.end(), [&](size_t number) {
    return input_.figures[number].when.time_ns <= time_ns;
  });
  const auto has_memory = [&](size_t number) {
    return input_.figures[number].used_bytes > kNearlyNothing;
  };
  return after != figures.begin() && has_memory(*std::prev(after)) &&
         (after == figures.end() || has_memory(*after));
}

int64_t Others::OnQuiet(const DeviceSample& sample, int64_t bytes) {
  const int64_t change = std::max(bytes, -this->bytes());
  if (change == 0)
    return 0;
  for (uint32_t process = 0; process < input_.processes.size(); ++process) {
    if (book_.WithRm(process) > kNearlyNothing && !IsListedAround(process, sample.when.time_ns))
      return 0;
  }
  Change(sample.when, change);
  figures_.NoteOthers(change);
  return change;
}

}  // namespace vramscope::resolve::price
