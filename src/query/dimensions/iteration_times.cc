// SPDX-License-Identifier: Apache-2.0
#include "query/dimensions/iteration_times.h"

#include <algorithm>

#include "tables/imported.h"

namespace vramscope::query {

int64_t ProcessIterations::NumberAt(int64_t time_ns) const {
  if (time_ns <= begin_ns_)
    return -1;
  return first_ + (std::lower_bound(ends_ns_.begin(), ends_ns_.end(), time_ns) - ends_ns_.begin());
}

IterationTimes::IterationTimes(const tables::Tables& tables)
    : processes_(std::max<size_t>(tables.processes.size(), 1)) {
  for (const tables::IterationRow& row : tables.iterations) {
    if (row.process.value == 0 || row.process.value >= processes_.size())
      continue;
    ProcessIterations& process = processes_[row.process.value];
    if (process.ends_ns_.empty()) {
      constexpr int64_t kMost = int64_t{1} << 40;
      process.begin_ns_ = row.begin_ns;
      process.first_ = std::clamp<int64_t>(row.number, 0, kMost);
      first_ = count_ == 0 ? process.first_ : std::min(first_, process.first_);
    }
    // A damaged table may go back in time.
    const int64_t least_ns = process.ends_ns_.empty() ? process.begin_ns_ : process.ends_ns_.back();
    process.ends_ns_.push_back(std::max(row.end_ns, least_ns));
    count_ = std::max(count_, process.count());
  }
}

std::string WhatEndsIterations(const tables::Recording& recording) {
  return tables::NoteOf(recording, tables::kImportedNote).empty()
             ? "a torch optimizer's step ends one, or vramscope.mark(\"iteration\")"
             : "in an import, ProfilerStep#N or Optimizer.step#NAME is one";
}

}  // namespace vramscope::query
