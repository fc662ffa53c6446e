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

// Times at which calls were under way.
class Spans {
 public:
  void Add(int64_t begin_ns, int64_t end_ns) { spans_.push_back({begin_ns, end_ns}); }
  void Sort() {
    // Usually sorted already: one thread makes its calls one after the other.
    if (!std::is_sorted(spans_.begin(), spans_.end()))
      std::sort(spans_.begin(), spans_.end());
    latest_end_.reserve(spans_.size());
    int64_t latest = INT64_MIN;
    for (const auto& [begin_ns, end_ns] : spans_)
      latest_end_.push_back(latest = std::max(latest, end_ns));
  }
  // Whether a span began before end_ns and ended after begin_ns.
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

// NVML's samples and the program's events have the same clock, read through two conversions. They
// agree to within this.
inline constexpr int64_t kClockErrorNs = 10'000;
// What NVML may list for a process without memory, and the tolerance of figures.
inline constexpr int64_t kNearlyNothing = 4 << 20;
// The kernel module has 9 MiB for a process with a context on an H200.
inline constexpr int64_t kLargestRm = 32 << 20;

// Two figures of the device and the implicit calls between them.
struct Interval {
  When until;                 // at the later figure's
  int64_t from_ns = 0;        // of the earlier figure, in the order of events
  int64_t from_begin_ns = 0;  // when the earlier figure was taken
  int64_t used_bytes = 0;     // the later one
  int64_t growth_bytes = 0;   // explicit calls included
  bool is_plain = true;       // only explicit calls moved memory in it
  std::vector<uint32_t> calls;
};

// When a process that began late is first known to have had memory before recording.
struct LateStart {
  uint32_t process = kNone;
  int64_t time_ns = 0;
  // It began late, and no figure of the device came until then that could say whose its memory was.
  int64_t since_ns = 0;
  size_t figure = 0;             // NVML's
  std::optional<size_t> sample;  // the last before it, or the first one soon after
  // What calls under way had of it, which is not of the ledger then, and when they ended.
  int64_t taken_bytes = 0;
  int64_t taken_until_ns = 0;
};

struct Series {
  std::vector<When> calls;  // of DeviceInput::calls, with estimated ends where unknown
  std::vector<Interval> intervals;
  std::vector<uint32_t> unpriced;  // calls without a figure before and after them
  std::vector<LateStart> late_starts;
  std::vector<bool> counted;  // samples taken while a recorded process used the device
  // The same, with no call under way and no process with a context ending.
  std::vector<bool> calm;
  // The same, but calls that move another process's memory, or ends, may be under way.
  std::vector<bool> calm_but_for_checkpoints;
  std::vector<bool> calm_but_for_ends;
  // Samples taken while no recorded process used the device: all their bytes are other processes'.
  std::vector<bool> baseline;
  std::optional<int64_t> offset;  // readings less samples
};

Series MakeSeries(const DeviceInput& input);

std::vector<ArrayPrice> PriceArrays(const DeviceInput& input, const Series& series);

}  // namespace vramscope::resolve::price
