// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace vramscope::resolve::price {

// Times at which calls were under way.
class Spans {
 public:
  void Add(int64_t begin_ns, int64_t end_ns) { spans_.push_back({begin_ns, end_ns}); }
  void Sort() {
    // As a rule it is: one thread makes its calls one after the other.
    if (!std::is_sorted(spans_.begin(), spans_.end()))
      std::sort(spans_.begin(), spans_.end());
    latest_end_.reserve(spans_.size());
    int64_t latest = INT64_MIN;
    for (const auto& [begin_ns, end_ns] : spans_)
      latest_end_.push_back(latest = std::max(latest, end_ns));
  }
  // Whether one began before end_ns and ended after begin_ns.
  bool Overlap(int64_t begin_ns, int64_t end_ns) const {
    const auto after = std::lower_bound(
        spans_.begin(), spans_.end(), end_ns,
        [](const std::pair<int64_t, int64_t>& span, int64_t ns) { return span.first < ns; });
    return after != spans_.begin() &&
           latest_end_[static_cast<size_t>(after - spans_.begin()) - 1] > begin_ns;
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> spans_;
  std::vector<int64_t> latest_end_;  // of all up to this one
};

}  // namespace vramscope::resolve::price
