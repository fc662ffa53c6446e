// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/managed.h"
#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// The difference between device and rows at samples without calls under way: memory of unknown
// cause. It is reported with the time in which it appeared, so that the calls of that time can be
// named. Extra memory gets a row, so the rows add up again. Missing memory stays residual.
class Unexplained {
 public:
  Unexplained(const DeviceInput& input, Book* book) : input_(input), book_(*book) {}

  // Returns the steps that the sample made. A difference counts after two consecutive samples show
  // it, because a single sample's time stamp can be wrong.
  std::vector<StepRef> OnQuiet(const DeviceSample& sample, int64_t bytes);
  // The same while calls are unpriced: the sample can only end a difference.
  void OnUnsettled(const DeviceSample& sample, int64_t bytes) {
    if (bytes == missing_bytes_ && !seen_)
      agreed_ = sample.when;
  }
  // The cause of the bytes missing since then is now known.
  void OnReason(const When& when);
  // Moves up to `bytes`, newest first, to the row of the UVM driver, which has had less than the
  // rows had.
  void MoveToManaged(int64_t bytes, Managed* managed);
  const std::vector<uint32_t>& rows() const { return rows_; }
  // Call after all samples.
  std::vector<Missing> TakeMissing();

 private:
  struct Seen {
    When since;  // the last sample that agreed
    When first;  // the first that did not
    int64_t bytes = 0;
  };

  // Whether an explicit call moved exactly that much in (from_ns, to_ns].
  bool IsMovedIn(int64_t bytes, int64_t from_ns, int64_t to_ns) const;

  const DeviceInput& input_;
  Book& book_;
  std::vector<uint32_t> rows_;
  std::vector<Missing> missing_;
  int64_t missing_bytes_ = 0;  // of all, negative
  std::optional<When> agreed_;
  std::optional<Seen> seen_;
  int64_t last_ns_ = INT64_MIN;  // of the last sample
};

}  // namespace vramscope::resolve::price
