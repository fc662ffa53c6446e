// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "query/diff/diff_parts.h"
#include "query/dimensions/fold_names.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Phase;

constexpr double kTolerance = 0.02;
constexpr double kSmallestChange = 0.01;
// Scalars and counters scale with nothing.
constexpr double kSmallestBytes = 256;

bool IsNear(double value, double wanted) {
  return std::abs(value / wanted - 1) <= kTolerance;
}

double Average(const DiffSum& sum) {
  return static_cast<double>(sum.bytes) / static_cast<double>(sum.count);
}

// How a site's allocations differ in size.
struct SiteRatio {
  DiffKey key;
  double ratio = 1;
  double bytes = 0;   // of one allocation in A
  double weight = 0;  // of all in A
};

std::vector<SiteRatio> RatiosOf(const Comparison& all) {
  std::vector<SiteRatio> ratios;
  for (const auto& [key, sum] : all.a.calls) {
    const auto other = all.b.calls.find(key);
    if (other == all.b.calls.end() || !IsPassing(key.category) || sum.bytes == 0)
      continue;
    ratios.push_back(
        {key, Average(other->second) / Average(sum), Average(sum), static_cast<double>(sum.bytes)});
  }
  return ratios;
}

// An input is allocated before the forward.
bool IsOfForward(const DiffKey& key) {
  return format::RunsModel(key.phase);
}

// The ratio that half of what A's forward allocates has; 1 where there is none.
double MainRatio(const DiffSums& calls, std::vector<SiteRatio> ratios) {
  std::erase_if(ratios, [](const SiteRatio& site) { return !IsOfForward(site.key); });
  std::sort(ratios.begin(), ratios.end(),
            [](const SiteRatio& x, const SiteRatio& y) { return x.ratio < y.ratio; });
  double total = 0;
  for (const auto& [key, sum] : calls) {
    if (IsPassing(key.category) && IsOfForward(key))
      total += static_cast<double>(sum.bytes);
  }
  double matched = 0;
  for (const SiteRatio& site : ratios)
    matched += site.weight;
  double below = 0;
  double median = 1;
  for (const SiteRatio& site : ratios) {
    below += site.weight;
    median = site.ratio;
    if (below * 2 >= matched)
      break;
  }
  double near = 0;
  for (const SiteRatio& site : ratios)
    near += IsNear(site.ratio, median) ? site.weight : 0;
  return near * 2 >= total && std::abs(median - 1) > kSmallestChange ? median : 1;
}

// What of the parameters has another size.
struct ParameterChange {
  uint64_t bytes = 0;
  uint64_t changed_bytes = 0;
  std::map<std::string, uint64_t> scaled;  // names of those that follow the ratio
};
ParameterChange ParametersOf(const Comparison& all, double ratio) {
  ParameterChange change;
  for (const ComparedRow& row : all.rows) {
    const bool fixed =
        row.key.category == Category::kParameter || row.key.category == Category::kBuffer;
    if (!fixed || row.a.bytes == 0 || row.b.bytes == 0)
      continue;
    change.bytes += row.a.bytes;
    if (row.delta() == 0)
      continue;
    change.changed_bytes += row.a.bytes;
    const double own = static_cast<double>(row.b.bytes) / static_cast<double>(row.a.bytes);
    if (IsNear(own, ratio) || IsNear(own, ratio * ratio))
      change.scaled[all.words[row.key.parameter]] += row.b.bytes;
  }
  return change;
}

std::string FactorText(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2fx", ratio);
  return text;
}

}  // namespace

std::optional<ElementSize> FindElementSize(const Comparison& all) {
  std::optional<ElementSize> size;
  size_t parameters = 0;
  for (const ComparedRow& row : all.rows) {
    if (row.key.category != Category::kParameter || row.a.bytes == 0 || row.b.bytes == 0)
      continue;
    ++parameters;
    // What is common to all of them: no layer of another width changes so.
    if (!size) {
      for (const ElementSize& known : {ElementSize{2, 1}, {1, 2}, {4, 1}, {1, 4}}) {
        if (row.b.bytes * known.a == row.a.bytes * known.b)
          size = known;
      }
    }
    if (!size || row.b.bytes * size->a != row.a.bytes * size->b)
      return std::nullopt;
  }
  if (!size || parameters < 2)
    return std::nullopt;
  // What layers compute has elements of their size, but for autocast.
  const double ratio = MainRatio(all.a.calls, RatiosOf(all));
  const double expected = static_cast<double>(size->b) / static_cast<double>(size->a);
  return IsNear(ratio, expected) ? size : std::nullopt;
}

std::optional<Scale> FindScale(const Comparison& all) {
  const std::vector<SiteRatio> ratios = RatiosOf(all);
  Scale scale;
  scale.ratio = MainRatio(all.a.calls, ratios);
  if (scale.ratio == 1)
    return std::nullopt;
  const double square = scale.ratio * scale.ratio;
  const bool square_is_telling = std::abs(scale.ratio - 1) > 4 * kTolerance;
  const ParameterChange parameters = ParametersOf(all, scale.ratio);
  std::map<std::string, uint64_t> unscaled;  // layers by their bytes
  std::set<std::string> scaled;
  const SiteRatio* largest_square = nullptr;
  for (const SiteRatio& site : ratios) {
    const bool follows = (site.ratio > 1) == (scale.ratio > 1) && std::abs(site.ratio - 1) > 0.001;
    if (follows)
      scale.keys.insert(site.key);
    if (!IsOfForward(site.key) || site.bytes < kSmallestBytes)
      continue;
    if (square_is_telling && IsNear(site.ratio, square) &&
        (largest_square == nullptr || site.weight > largest_square->weight))
      largest_square = &site;
    // The scratch memory of a library may stay as it is: a layer does where all of it does.
    const std::string& module = all.words[site.key.module];
    if (std::abs(site.ratio - 1) < 0.001)
      unscaled[module] += static_cast<uint64_t>(site.bytes);
    else
      scaled.insert(module);
  }
  std::erase_if(unscaled, [&](const auto& layer) {
    return layer.first.empty() || scaled.contains(layer.first);
  });
  if (parameters.changed_bytes * 2 > parameters.bytes) {
    scale.kind = Scale::Kind::kWithParameters;
  } else if (largest_square != nullptr) {
    scale.kind = Scale::Kind::kSequence;
    scale.evidence = all.Line(largest_square->key.place) + " by its square (" +
                     FactorText(largest_square->ratio) + ")";
  } else if (!parameters.scaled.empty() && !parameters.scaled.contains("")) {
    scale.kind = Scale::Kind::kSequence;
    scale.evidence = FoldNames(parameters.scaled);
  } else if (!unscaled.empty()) {
    scale.kind = Scale::Kind::kBatch;
    scale.evidence = FoldNames(unscaled);
  }
  return scale;
}

}  // namespace vramscope::query
