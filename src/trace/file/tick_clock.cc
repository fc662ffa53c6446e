// SPDX-License-Identifier: Apache-2.0
#include "trace/file/tick_clock.h"

#include <algorithm>
#include <cmath>

namespace vramscope::trace {
namespace {

// Two readings a microsecond apart cannot tell the rate: pieces are at least this long.
constexpr int64_t kMinPieceNs = 10'000'000;
// How far a piece's rate may be off the file's: more than clock slewing (500 ppm), and enough for a
// reading that was interrupted for 0.1 ms in a piece of 10 ms.
constexpr double kRateTolerance = 0.01;
// A credible counter runs between 1 MHz and 100 GHz.
constexpr double kMinRate = 0.01;
constexpr double kMaxRate = 1000;
// Length of the last piece. Half the range, so that a stamp before a piece never counts as in it.
constexpr uint64_t kEndless = uint64_t{1} << 63;

double Slope(const TickClock::Anchor& a, const TickClock::Anchor& b) {
  return static_cast<double>(b.ns - a.ns) /
         static_cast<double>(static_cast<int64_t>(b.ticks - a.ticks));
}

bool CredibleRate(double rate) {
  return std::isfinite(rate) && rate > kMinRate && rate < kMaxRate;
}

// From the pairs that are at least this far from the origin.
std::optional<double> MedianSlope(const TickClock::Anchor& origin,
                                  const std::vector<TickClock::Anchor>& anchors,
                                  int64_t least_ns) {
  std::vector<double> slopes;
  for (const TickClock::Anchor& anchor : anchors) {
    const double slope = Slope(origin, anchor);
    if (anchor.ns - origin.ns >= least_ns && CredibleRate(slope))
      slopes.push_back(slope);
  }
  if (slopes.empty())
    return std::nullopt;
  const auto middle = slopes.begin() + static_cast<ptrdiff_t>(slopes.size() / 2);
  std::nth_element(slopes.begin(), middle, slopes.end());
  return *middle;
}

}  // namespace

TickClock::TickClock(Anchor origin,
                     std::vector<Anchor> anchors,
                     std::optional<double> fallback_rate) {
  origin.ns = std::clamp(origin.ns, -kMaxNs, kMaxNs);
  std::erase_if(anchors, [&](const Anchor& anchor) {
    return anchor.ticks <= origin.ticks || anchor.ns <= origin.ns || anchor.ns > kMaxNs;
  });
  std::sort(anchors.begin(), anchors.end(),
            [](const Anchor& a, const Anchor& b) { return a.ticks < b.ticks; });

  // The rate is the median of the slopes from the origin, over long pieces where there are any: a
  // few wild pairs do not move it. Over short ones it is only better than none: what is wrong by
  // half a microsecond in 0.1 ms is wrong by 50 in the next 10 ms.
  measured_rate_ = MedianSlope(origin, anchors, kMinPieceNs);
  const double rate = measured_rate_  ? *measured_rate_
                      : fallback_rate ? *fallback_rate
                                      : MedianSlope(origin, anchors, 0).value_or(1.0);

  points_.push_back({origin.ticks, kEndless, origin.ns, rate});
  for (const Anchor& anchor : anchors) {
    Point& previous = points_.back();
    if (anchor.ns - previous.ns < kMinPieceNs)
      continue;
    const double slope = Slope({previous.ticks, previous.ns}, anchor);
    if (std::abs(slope / rate - 1) > kRateTolerance)
      continue;
    previous.rate = slope;
    previous.length = anchor.ticks - previous.ticks;
    points_.push_back({anchor.ticks, kEndless, anchor.ns, slope});
  }
}

const TickClock::Point& TickClock::Find(uint64_t ticks) const {
  // Ticks before the origin count back from it: compare as signed distances.
  const auto after = std::upper_bound(points_.begin(), points_.end(), ticks,
                                      [](uint64_t value, const Point& point) {
                                        return static_cast<int64_t>(value - point.ticks) < 0;
                                      });
  last_ = after == points_.begin() ? 0 : static_cast<size_t>(after - points_.begin()) - 1;
  return points_[last_];
}

}  // namespace vramscope::trace
