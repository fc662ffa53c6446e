// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>

#include "output/page/page_tables.h"
#include "output/results/json_parts.h"

namespace vramscope::output {

Heaviest::Heaviest(size_t limit) : limit_(std::max<size_t>(limit, 1)) {}

void Heaviest::Add(double weight) {
  if (weight < floor_)
    return;
  weights_.push_back(weight);
  if (weights_.size() >= 2 * limit_ + 1024)
    Cut();
}

void Heaviest::Close() {
  if (weights_.size() > limit_)
    Cut();
  const auto above = std::count_if(weights_.begin(), weights_.end(),
                                   [&](double weight) { return weight > floor_; });
  at_floor_ = limit_ - std::min(limit_, static_cast<size_t>(above));
}

bool Heaviest::Has(double weight) {
  if (weight != floor_)
    return weight > floor_;
  if (at_floor_ == 0)
    return false;
  --at_floor_;
  return true;
}

void Heaviest::Cut() {
  const auto last = weights_.begin() + static_cast<ptrdiff_t>(limit_ - 1);
  std::nth_element(weights_.begin(), last, weights_.end(), std::greater<>());
  floor_ = *last;
  weights_.resize(limit_);
}

LeftOut::LeftOut(std::vector<int64_t> instants_ns, const std::set<int64_t>& fixed)
    : instants_ns_(std::move(instants_ns)) {
  for (const int64_t instant_ns : instants_ns_)
    is_fixed_.push_back(fixed.contains(instant_ns));
}

void LeftOut::Add(uint32_t site,
                  uint32_t segment,
                  uint64_t bytes,
                  uint64_t count,
                  int64_t begin_ns,
                  int64_t end_ns) {
  const size_t begin = FirstFrom(begin_ns);
  const size_t end = FirstFrom(end_ns);
  if (begin == end)
    return;
  std::map<size_t, Change>& changes = changes_[{site, segment}];
  changes[begin].bytes += static_cast<int64_t>(bytes);
  changes[begin].count += static_cast<int64_t>(count);
  if (end == instants_ns_.size())
    return;
  changes[end].bytes -= static_cast<int64_t>(bytes);
  changes[end].count -= static_cast<int64_t>(count);
}

void LeftOut::Thin(size_t most_changes) {
  for (;;) {
    size_t count = 0;
    for (const auto& [key, changes] : changes_)
      count += changes.size();
    const size_t before = instants_ns_.size();
    if (count <= most_changes || !ThinOnce() || instants_ns_.size() == before)
      return;
  }
}

void LeftOut::Write(int64_t start_ns, util::JsonWriter& json) const {
  struct Row {
    uint32_t site, segment;
    size_t at;
    Change change;
  };
  std::vector<Row> rows;
  for (const auto& [key, changes] : changes_) {
    for (const auto& [at, change] : changes) {
      if (change.bytes != 0 || change.count != 0)
        rows.push_back({key.first, key.second, at, change});
    }
  }
  json.Key("left_out");
  json.BeginObject();
  json.Field("count", count_);
  const bool any = count_ > 0;
  WriteDeltas(json, "instants", any ? instants_ns_ : std::vector<int64_t>{},
              [&](int64_t time_ns) { return time_ns - start_ns; });
  WriteColumn(json, "site", rows, [](const Row& row) { return row.site; });
  WriteColumn(json, "segment", rows, [](const Row& row) { return row.segment; });
  WriteColumn(json, "at", rows, [](const Row& row) { return row.at; });
  WriteColumn(json, "bytes", rows, [](const Row& row) { return row.change.bytes; });
  WriteColumn(json, "counts", rows, [](const Row& row) { return row.change.count; });
  json.EndObject();
}

bool LeftOut::ThinOnce() {
  std::vector<size_t> next_kept(instants_ns_.size());
  std::vector<int64_t> kept_ns;
  std::vector<bool> kept_fixed;
  bool drop = false;
  for (size_t i = 0; i < instants_ns_.size(); ++i) {
    next_kept[i] = kept_ns.size();
    // What changed at an instant that goes has changed by the next one: the last one stays.
    drop = !drop && !is_fixed_[i] && i + 1 < instants_ns_.size();
    if (drop)
      continue;
    kept_ns.push_back(instants_ns_[i]);
    kept_fixed.push_back(is_fixed_[i]);
  }
  for (auto& [key, changes] : changes_) {
    std::map<size_t, Change> thinned;
    for (const auto& [at, change] : changes) {
      Change& sum = thinned[next_kept[at]];
      sum.bytes += change.bytes;
      sum.count += change.count;
    }
    std::erase_if(thinned, [](const auto& entry) {
      return entry.second.bytes == 0 && entry.second.count == 0;
    });
    changes = std::move(thinned);
  }
  const bool any = kept_ns.size() < instants_ns_.size();
  instants_ns_ = std::move(kept_ns);
  is_fixed_ = std::move(kept_fixed);
  return any;
}

size_t LeftOut::FirstFrom(int64_t time_ns) const {
  return static_cast<size_t>(std::lower_bound(instants_ns_.begin(), instants_ns_.end(), time_ns) -
                             instants_ns_.begin());
}

}  // namespace vramscope::output
