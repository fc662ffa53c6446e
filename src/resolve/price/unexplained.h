// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/managed.h"
#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// What the device has more or less than all rows say, by samples in moments in which nothing is
// under way: memory whose cause nobody knows. It is reported with the time in which it came, so
// that the calls of that time can be named. What is there gets a row, and the rows add up again;
// what is missing cannot, and stays residual.
class Unexplained {
 public:
  Unexplained(const DeviceInput& input, Book* book) : input_(input), book_(*book) {}

  // Returns the steps of rows that the sample made. A difference counts once two samples in a row
  // have it: one alone may have been stamped at a moment that it is not of.
  std::vector<StepRef> OnQuiet(const DeviceSample& sample, int64_t bytes);
  // The same while calls wait for their prices: it only may show that all is well.
  void OnUnsettled(const DeviceSample& sample, int64_t bytes) {
    if (bytes == missing_bytes_ && !seen_)
      agreed_ = sample.when;
  }
  // What is missing since then went for a reason that is known now.
  void OnReason(const When& when);
  // Moves up to `bytes`, the newest first, to the row of the UVM driver, which has had less than
  // the rows said.
  void MoveToManaged(int64_t bytes, Managed* managed);
  const std::vector<uint32_t>& rows() const { return rows_; }
  // Once all samples are seen.
  std::vector<Missing> TakeMissing();

 private:
  struct Seen {
    When since;  // the last sample that agreed
    When first;  // the first that did not
    int64_t bytes = 0;
  };

  // Whether an explicit call moved just so much in (from_ns, to_ns].
  bool IsMovedIn(int64_t bytes, int64_t from_ns, int64_t to_ns) const;

  const DeviceInput& input_;
  Book& book_;
  std::vector<uint32_t> rows_;
  std::vector<Missing> missing_;
  int64_t missing_bytes_ = 0;  // of them all, less than nothing
  std::optional<When> agreed_;
  std::optional<Seen> seen_;
  int64_t last_ns_ = INT64_MIN;  // of the last sample
};

}  // namespace vramscope::resolve::price
