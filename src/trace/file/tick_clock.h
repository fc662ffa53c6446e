// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace vramscope::trace {

// Turns a writer's ticks into CLOCK_MONOTONIC nanoseconds: piecewise linear between the pairs of
// clocks that it left in its file, and along the nearest piece outside them. Never decreasing, so
// that it does not change the order of stamps.
//
//   ns  |              ,-' the last piece goes on
//       |        ____o'
//       |    _o-'          o  a pair: the file header's, one a chunk, Anchor records
//       | o-'          x       x  a pair that does not fit the others is left out
//       +----------------- ticks
class TickClock {
 public:
  struct Anchor {
    uint64_t ticks = 0;
    int64_t ns = 0;
  };

  // Ticks are nanoseconds.
  TickClock() = default;
  // `origin` is the file header's pair. Pairs that do not fit the others (a damaged header, a
  // thread descheduled between its two clock readings) are left out. `fallback_rate` (ns per tick)
  // is used where the pairs give no rate.
  TickClock(Anchor origin, std::vector<Anchor> anchors, std::optional<double> fallback_rate);

  // Nanoseconds per tick over the whole file, if its pairs say.
  std::optional<double> measured_rate() const { return measured_rate_; }

  int64_t ToNs(uint64_t ticks) const {
    if (points_.empty())
      return static_cast<int64_t>(ticks);
    const Point& near = points_[last_];
    const Point& point = ticks - near.ticks < near.length ? near : Find(ticks);
    // Stamps of a damaged file are anywhere.
    constexpr auto kMost = static_cast<double>(kMaxNs);
    const double since =
        static_cast<double>(static_cast<int64_t>(ticks - point.ticks)) * point.rate;
    return point.ns + static_cast<int64_t>(std::clamp(since, -kMost, kMost));
  }

 private:
  static constexpr int64_t kMaxNs = INT64_MAX / 4;  // sums and differences of such fit
  struct Point {
    uint64_t ticks;
    uint64_t length;  // ticks until the next point; the last one's piece does not end
    int64_t ns;
    double rate;  // from here to the next point
  };
  const Point& Find(uint64_t ticks) const;

  std::vector<Point> points_;
  std::optional<double> measured_rate_;
  // Stamps come in near order: the piece found last answers almost all. Not thread-safe, like the
  // streams that use it.
  mutable size_t last_ = 0;
};

}  // namespace vramscope::trace
