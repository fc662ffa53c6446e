// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "query/diff/diff_parts.h"

namespace vramscope::query {
namespace {

constexpr int64_t kMostPoints = 10;
// A line needs as many points.
constexpr size_t kPointsOfLine = 3;

DiffSum At(const DiffSide::IterationState& state, const DiffKey& key) {
  const auto found = state.end.find(key);
  return found == state.end.end() ? DiffSum{} : found->second;
}

// A line leaves out the iterations in which caches fill and optimizers make their state.
size_t FirstPoint(const DiffSide& side) {
  const size_t count = side.iterations.size();
  return count < kPointsOfLine ? count : std::min<size_t>(2, count - kPointsOfLine);
}

// Of what rises from each point to the next; else 0.
double Slope(const DiffSide& side, const DiffKey& key) {
  const size_t first = FirstPoint(side);
  if (first + kPointsOfLine > side.iterations.size())
    return 0;
  for (size_t i = first + 1; i < side.iterations.size(); ++i) {
    if (At(side.iterations[i], key).bytes <= At(side.iterations[i - 1], key).bytes)
      return 0;
  }
  const uint64_t rise =
      At(side.iterations.back(), key).bytes - At(side.iterations[first], key).bytes;
  const int64_t iterations = side.iterations.back().number - side.iterations[first].number;
  return static_cast<double>(rise) / static_cast<double>(iterations);
}

}  // namespace

std::vector<KeyGrowth> GrowingMore(const DiffSide& side, const DiffSide& other) {
  std::vector<KeyGrowth> growths;
  if (side.iterations.empty())
    return growths;
  for (const auto& [key, sum] : side.iterations.back().end) {
    if (!IsPassing(key.category) || key.slack)
      continue;
    const double slope = Slope(side, key);
    const double other_slope = slope > 0 ? Slope(other, key) : 0;
    // What both leak, of other sizes, is a matter of sizes.
    if (slope > 0 && other_slope == 0)
      growths.push_back({key, slope, sum.bytes});
  }
  return growths;
}

std::vector<KeyGrowth> GrowingInBoth(const DiffSide& a, const DiffSide& b) {
  std::vector<KeyGrowth> growths;
  if (a.iterations.empty() || b.iterations.empty())
    return growths;
  for (const auto& [key, sum] : b.iterations.back().end) {
    if (!IsPassing(key.category) || key.slack)
      continue;
    const double slope = std::min(Slope(a, key), Slope(b, key));
    if (slope > 0)
      growths.push_back({key, slope, sum.bytes});
  }
  return growths;
}

std::vector<KeptMore> KeptBeyondIteration(const DiffSide& side, const DiffSide& other) {
  std::vector<KeptMore> kept;
  if (side.iterations.empty() || other.iterations.empty())
    return kept;
  for (const auto& [key, sum] : side.iterations.back().end) {
    // What the other never allocates there is new or gone, and not kept for longer.
    if (!IsPassing(key.category) || key.slack || !other.Allocates(key))
      continue;
    const DiffSum there = At(other.iterations.back(), key);
    if (sum.count > there.count && sum.bytes > there.bytes)
      kept.push_back({key, sum, there});
  }
  return kept;
}

std::vector<int64_t> IterationsToCompare(int64_t count) {
  // The last may have been cut off, or followed by an evaluation: it is one of many then.
  std::vector<int64_t> numbers;
  const int64_t points = std::min(count, kMostPoints);
  for (int64_t i = 0; i < points; ++i)
    numbers.push_back(points <= 1 ? 0 : i * (count - 1) / (points - 1));
  return numbers;
}

}  // namespace vramscope::query
