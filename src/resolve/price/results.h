// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/checkpoints.h"
#include "resolve/price/figures.h"
#include "resolve/price/price.h"
#include "resolve/price/series.h"

namespace vramscope::resolve::price {

// After all prices: makes counters and steps, and compares the ledger with each NVML figure.
// `bytes` are those of the explicit calls.
class Results {
 public:
  Results(const DeviceInput& input,
          const Series& series,
          const std::vector<int64_t>& bytes,
          const Book& book,
          const Checkpoints& checkpoints,
          const Figures& figures)
      : input_(input),
        series_(series),
        bytes_(bytes),
        book_(book),
        checkpoints_(checkpoints),
        figures_(figures) {}

  void Fill(DevicePrices* out);

 private:
  // Bytes that may have moved at any moment of a call. Samples before the call exclude them,
  // samples after it include them.
  struct Transit {
    When when;
    int64_t bytes = 0;
    bool only_less = false;    // memory that was freed and allocated again
    uint32_t process = kNone;  // applies to this process's figures only; kNone: to all
    bool of_others = false;    // applies to the device's figures only
  };
  struct Figure {
    When when;
    uint32_t process = kNone;  // kNone: of the device
    Compared* result = nullptr;
  };

  void CollectSteps();
  void Replay();
  void CompareFigures();

  const DeviceInput& input_;
  const Series& series_;
  const std::vector<int64_t>& bytes_;
  const Book& book_;
  const Checkpoints& checkpoints_;
  const Figures& figures_;
  DevicePrices* out_ = nullptr;
  std::vector<uint32_t> accounts_;  // of each step
  std::vector<Transit> transits_;
};

}  // namespace vramscope::resolve::price
