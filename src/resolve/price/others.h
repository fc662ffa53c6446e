// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/figures.h"
#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// The row of the processes that nobody records, and what they take and give back while no recorded
// one calls. What they do meanwhile Figures finds out.
class Others {
 public:
  Others(const DeviceInput& input, Book* book, Figures* figures);

  // NVML lists such processes on the device at some time of the recording.
  bool are_listed() const { return are_listed_; }
  int64_t bytes() const { return row_ == kNone ? 0 : book_.row(row_).bytes; }
  void Change(const When& when, int64_t bytes);
  // No call is under way or waits for its price, and the device has `bytes` more than the rows say.
  // Returns what of that is theirs.
  int64_t OnQuiet(const DeviceSample& sample, int64_t bytes);

 private:
  bool IsListedAround(uint32_t process, int64_t time_ns) const;

  const DeviceInput& input_;
  Book& book_;
  Figures& figures_;
  std::vector<std::vector<size_t>> figures_of_;  // by process
  bool are_listed_ = false;
  uint32_t row_ = kNone;
};

}  // namespace vramscope::resolve::price
