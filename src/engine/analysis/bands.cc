// SPDX-License-Identifier: Apache-2.0
#include "engine/analysis/bands.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "engine/model/parts.h"

namespace vramscope::engine {
namespace {

// Bottom first.
int Layer(const GroupKey& key) {
  if (key.part == Part::kOtherProcesses || key.part == Part::kRmInternal ||
      key.part == Part::kBeforeRecording)
    return static_cast<int>(kCategories) + 2;
  if (key.category == Category::kDriver)
    return static_cast<int>(kCategories) + 1;
  return static_cast<int>(key.category);
}

std::string BandName(const GroupKey& key, const Owners& owners) {
  if (key.category != Category::kUnknown && key.category != Category::kDriver)
    return CategoryName(key.category);
  const std::string& owner = owners.name(key.owner);
  return (owner.empty() ? "" : owner + " / ") + PartName(key.part);
}

// At most four samples a bucket: the lowest and the highest of each half.
std::vector<std::pair<int64_t, uint64_t>> Thin(const std::vector<DeviceSampleRecord>& samples,
                                               size_t buckets) {
  std::vector<std::pair<int64_t, uint64_t>> out;
  const size_t step = std::max<size_t>(1, samples.size() / std::max<size_t>(1, 2 * buckets));
  for (size_t first = 0; first < samples.size(); first += step) {
    const auto begin = samples.begin() + static_cast<ptrdiff_t>(first);
    const auto end =
        samples.begin() + static_cast<ptrdiff_t>(std::min(first + step, samples.size()));
    auto [low, high] = std::minmax_element(
        begin, end, [](const auto& a, const auto& b) { return a.used < b.used; });
    if (high < low)
      std::swap(low, high);
    out.emplace_back(low->end_ns, low->used);
    if (high != low)
      out.emplace_back(high->end_ns, high->used);
  }
  return out;
}

}  // namespace

Bands MakeBands(const DeviceState& device, const Owners& owners, size_t buckets) {
  struct Band {
    int layer = 0;
    uint64_t sum = 0;
    std::vector<uint64_t> bytes;
  };
  Bands bands;
  const std::vector<TimelineRecorder::Bucket> history = device.timeline.Read(buckets);
  std::map<std::string, Band> by_name;
  for (size_t group = 0; group < device.group_keys.size(); ++group) {
    Band& band = by_name[BandName(device.group_keys[group], owners)];
    band.layer = Layer(device.group_keys[group]);
    band.bytes.resize(history.size());
    for (size_t i = 0; i < history.size(); ++i) {
      const int64_t bytes = group < history[i].groups.size() ? history[i].groups[group] : 0;
      band.bytes[i] += bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
      band.sum += bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
    }
  }
  std::vector<std::pair<std::string, Band>> order(std::make_move_iterator(by_name.begin()),
                                                  std::make_move_iterator(by_name.end()));
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second.layer != b.second.layer ? a.second.layer < b.second.layer
                                            : a.second.sum > b.second.sum;
  });
  for (auto& [name, band] : order) {
    if (band.sum == 0)
      continue;
    bands.names.push_back(name);
    bands.bytes.push_back(std::move(band.bytes));
  }
  for (const TimelineRecorder::Bucket& bucket : history)
    bands.time_ns.push_back(bucket.begin_ns);
  bands.nvml = Thin(device.samples, buckets);
  return bands;
}

}  // namespace vramscope::engine
