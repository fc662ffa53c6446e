// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tables/recording.h"

namespace vramscope::query {

// Where a process's iterations begin and end: iteration k is (BeginOf(k), EndOf(k)].
class ProcessIterations {
 public:
  bool empty() const { return ends_ns_.empty(); }
  // The number of the first one that is known: a ring does not keep those before it.
  int64_t first() const { return first_; }
  // Behind the number of the last one.
  int64_t count() const { return first_ + static_cast<int64_t>(ends_ns_.size()); }
  // One that is not kept is as long as nothing.
  int64_t BeginOf(int64_t number) const {
    return number <= first_ ? begin_ns_ : ends_ns_[static_cast<size_t>(number - first_ - 1)];
  }
  int64_t EndOf(int64_t number) const {
    return number < first_ ? begin_ns_ : ends_ns_[static_cast<size_t>(number - first_)];
  }
  bool Holds(int64_t number, int64_t time_ns) const {
    return number < count() && time_ns > BeginOf(number) && time_ns <= EndOf(number);
  }
  // The iteration that an instant is in: -1 before the first, count() after the last. Only where
  // there are some.
  int64_t NumberAt(int64_t time_ns) const;

 private:
  friend class IterationTimes;
  int64_t begin_ns_ = 0;
  int64_t first_ = 0;
  std::vector<int64_t> ends_ns_;  // ascending
};

// The table `iterations`, by process.
class IterationTimes {
 public:
  explicit IterationTimes(const tables::Tables& tables);
  const ProcessIterations& Of(tables::ProcessId process) const {
    return processes_[process.value < processes_.size() ? process.value : 0];
  }
  // The most that any process has.
  int64_t count() const { return count_; }
  // The least number that any process knows.
  int64_t first() const { return first_; }

 private:
  std::vector<ProcessIterations> processes_;
  int64_t count_ = 0;
  int64_t first_ = 0;
};

// What makes one where a recording has none: "a torch optimizer's step ends one, ...".
std::string WhatEndsIterations(const tables::Recording& recording);

}  // namespace vramscope::query
