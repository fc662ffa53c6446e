// SPDX-License-Identifier: Apache-2.0
#include "engine/analysis/bands.h"

#include <algorithm>
#include <numeric>

#include "engine/model/parts.h"

namespace vramscope::engine {
namespace {

// Bottom first: others' memory, the driver's, the program's, free memory of allocators.
int Layer(const GroupKey& key) {
  if (key.part == Part::kOtherProcesses || key.part == Part::kRmInternal)
    return 0;
  if (PartCategory(key.part) == Category::kDriver)
    return 1;
  return IsSlack(key.part) ? 3 : 2;
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

Bands MakeBands(const DeviceState& device, size_t buckets) {
  Bands bands;
  const std::vector<TimelineRecorder::Bucket> history = device.timeline.Read(buckets);
  const size_t count = device.group_keys.size();
  std::vector<std::vector<uint64_t>> series(count);
  std::vector<uint64_t> sums(count);
  for (size_t group = 0; group < count; ++group) {
    series[group].reserve(history.size());
    for (const TimelineRecorder::Bucket& bucket : history) {
      const int64_t bytes = group < bucket.groups.size() ? bucket.groups[group] : 0;
      series[group].push_back(bytes > 0 ? static_cast<uint64_t>(bytes) : 0);
      sums[group] += series[group].back();
    }
  }
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int layer_a = Layer(device.group_keys[a]);
    const int layer_b = Layer(device.group_keys[b]);
    return layer_a != layer_b ? layer_a < layer_b : sums[a] > sums[b];
  });
  for (const size_t group : order) {
    if (sums[group] == 0)
      continue;
    bands.groups.push_back(device.group_keys[group]);
    bands.bytes.push_back(std::move(series[group]));
  }
  for (const TimelineRecorder::Bucket& bucket : history)
    bands.time_ns.push_back(bucket.begin_ns);
  bands.nvml = Thin(device.samples, buckets);
  return bands;
}

}  // namespace vramscope::engine
