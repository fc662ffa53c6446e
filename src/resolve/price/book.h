// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "resolve/price/price.h"

namespace vramscope::resolve::price {

using format::IsOfUvm;

constexpr bool IsDriverPart(format::Part part) {
  return part >= format::Part::kContext && part <= format::Part::kOtherDriver;
}

// Where a counter was changed.
struct StepRef {
  uint32_t counter = kNone;
  size_t step = 0;
};

// The counters of one device while they are found, and each process's bytes so far. Steps are added
// in time order; later figures may correct them.
class Book {
 public:
  struct Row {
    Counter counter;
    uint32_t account = kNone;  // freed when this process ends; also for RM-internal rows
    std::vector<Step> steps;
    int64_t bytes = 0;
    bool of_primary = false;  // its context's handle may be reused
  };

  explicit Book(size_t processes)
      : explicit_bytes_(processes), priced_bytes_(processes), rm_bytes_(processes) {}

  uint32_t Add(Counter counter, uint32_t account) {
    rows_.push_back({std::move(counter), account, {}, 0, false});
    return static_cast<uint32_t>(rows_.size() - 1);
  }
  StepRef Change(uint32_t row, const When& when, int64_t bytes) {
    rows_[row].steps.push_back({when, row, bytes});
    Count(row, bytes);
    return {row, rows_[row].steps.size() - 1};
  }
  // The primary context ended; a later one may reuse its handle.
  void KeepRowsOf(uint32_t process, uint64_t context) {
    for (Row& row : rows_)
      row.of_primary |= row.account == process && row.counter.context == context;
  }
  // Adds `bytes` to the step.
  void Correct(StepRef ref, int64_t bytes) {
    if (bytes == 0)
      return;
    rows_[ref.counter].steps[ref.step].bytes += bytes;
    rows_[ref.counter].counter.corrected = true;
    Count(ref.counter, bytes);
  }
  // In any order; they must add up to the replaced steps.
  void SetSteps(uint32_t row, std::vector<Step> steps) { rows_[row].steps = std::move(steps); }
  // For counters without StepRefs.
  void CorrectAt(uint32_t row, const When& when, int64_t bytes) {
    if (bytes == 0)
      return;
    std::vector<Step>& steps = rows_[row].steps;
    const auto after = std::partition_point(steps.begin(), steps.end(), [&](const Step& step) {
      return step.when.time_ns <= when.time_ns;
    });
    steps.insert(after, {when, row, bytes});
    rows_[row].counter.corrected = true;
    Count(row, bytes);
  }
  // How much a correction from that time on may take without making the row negative.
  int64_t LowestFrom(uint32_t row, int64_t time_ns) const {
    int64_t bytes = 0;
    int64_t lowest = INT64_MAX;
    for (const Step& step : rows_[row].steps) {
      bytes += step.bytes;
      if (step.when.time_ns >= time_ns)
        lowest = std::min(lowest, bytes);
    }
    return std::max<int64_t>(0, std::min(lowest, bytes));
  }
  void Move(uint32_t process, int64_t bytes) {
    if (process < explicit_bytes_.size())
      explicit_bytes_[process] += bytes;
  }

  const std::vector<Row>& rows() const { return rows_; }
  const Row& row(uint32_t number) const { return rows_[number]; }
  const Step& step(StepRef ref) const { return rows_[ref.counter].steps[ref.step]; }
  // As NVML counts the process.
  int64_t TotalOf(uint32_t process) const {
    return explicit_bytes_[process] + priced_bytes_[process];
  }
  int64_t ExplicitOf(uint32_t process) const { return explicit_bytes_[process]; }
  int64_t WithRm(uint32_t process) const { return TotalOf(process) + rm_bytes_[process]; }
  int64_t of_nobody_bytes() const { return of_nobody_bytes_; }

 private:
  void Count(uint32_t number, int64_t bytes) {
    Row& row = rows_[number];
    row.bytes += bytes;
    if (row.account == kNone || IsOfUvm(row.counter.part))
      of_nobody_bytes_ += bytes;
    else if (row.counter.part == format::Part::kRmInternal)
      rm_bytes_[row.account] += bytes;
    else
      priced_bytes_[row.account] += bytes;
  }

  std::vector<Row> rows_;
  std::vector<int64_t> explicit_bytes_;
  std::vector<int64_t> priced_bytes_;
  std::vector<int64_t> rm_bytes_;
  int64_t of_nobody_bytes_ = 0;
};

}  // namespace vramscope::resolve::price
