// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "query/predict/course.h"
#include "query/predict/fit.h"

// The iteration of the largest recording, run through again with the bytes that its allocations
// would have at another size. So the peak may be at another instant than in any recording: that of
// the optimizer at a small batch, that of backward at a large one.
namespace vramscope::query {

class Replay {
 public:
  // Fits each allocation's bytes to the sizes. Several of one place are matched by their order
  // where all courses have as many. The others, and those without a certain fit, are fitted
  // together: the most that is alive at once of their place, then of their layer, at last of
  // their category, where any fit will do.
  Replay(const std::vector<const Course*>& courses, const std::vector<double>& sizes);
  // From one course alone: its model stays, the rest grows with the size.
  Replay(const Course& course, double size);

  struct Peak {
    double bytes = 0;
    size_t step = 0;  // of the base's course
  };
  Peak PeakAt(double size) const;

  struct Part {
    Curve curve;
    double bytes = 0;
  };
  struct State {
    std::array<Part, format::kCategoryCount> categories{};
    format::Phase phase = format::Phase::kNone;
    double unmatched_bytes = 0;  // of what other courses do not have
    double uncertain_bytes = 0;  // of what no certain fit explains
  };
  // Behind a step.
  State StateAt(double size, size_t step) const;

  const Course& base() const { return *base_; }

 private:
  struct Bytes {
    double requested = 0;
    double rounding = 0;
  };
  Bytes BytesAt(uint32_t piece, double size) const;

  const Course* base_;
  std::vector<Curve> curves_;  // by piece of the base
  std::vector<bool> unmatched_;
  std::vector<bool> uncertain_;
};

// The model itself, and what is made once for it: it does not grow with the batch.
bool StaysAtAnySize(format::Category category);

}  // namespace vramscope::query
