// SPDX-License-Identifier: Apache-2.0
#include "engine/analysis/residual.h"

#include <algorithm>
#include <cstdlib>

namespace vramscope::engine {

SampleVerdict JudgeSample(const DeviceSampleRecord& sample) {
  SampleVerdict verdict;
  const int64_t difference = static_cast<int64_t>(sample.used) - sample.ledger;
  if (difference == 0)
    return verdict;
  if (difference >= -sample.low && difference <= sample.high) {
    verdict.in_transit = difference;
    verdict.explained_by_transit = true;
  } else {
    verdict.in_transit = difference > 0 ? sample.high : -sample.low;
    verdict.residual = difference - verdict.in_transit;
  }
  return verdict;
}

ResidualStatistics SummarizeResidual(const DeviceState& device) {
  ResidualStatistics statistics;
  std::vector<uint64_t> sizes;
  for (const DeviceSampleRecord& sample : device.samples) {
    if (!sample.counted)
      continue;
    const SampleVerdict verdict = JudgeSample(sample);
    ++statistics.samples;
    statistics.samples_in_transit += verdict.explained_by_transit ? 1 : 0;
    sizes.push_back(static_cast<uint64_t>(std::abs(verdict.residual)));
    if (std::abs(verdict.residual) > std::abs(statistics.worst_bytes)) {
      statistics.worst_bytes = verdict.residual;
      statistics.worst_at_ns = sample.end_ns;
    }
  }
  if (!sizes.empty()) {
    // The smallest figure that at least 99 % of the samples do not exceed.
    const size_t rank = (sizes.size() * 99 + 99) / 100 - 1;
    std::nth_element(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(rank), sizes.end());
    statistics.p99_bytes = sizes[rank];
  }
  return statistics;
}

namespace {

template <class Sample, class Worse>
const Sample* Nearest(const std::vector<Sample>& samples,
                      uint64_t version,
                      int64_t time_ns,
                      Worse worse) {
  // Versions never fall along the series.
  auto at = std::lower_bound(
      samples.begin(), samples.end(), version,
      [](const Sample& sample, uint64_t wanted) { return sample.version < wanted; });
  const Sample* best = nullptr;
  for (; at != samples.end() && at->version == version; ++at) {
    if (best == nullptr) {
      best = &*at;
      continue;
    }
    const int better = worse(*best) - worse(*at);
    if (better > 0 ||
        (better == 0 && std::abs(at->end_ns - time_ns) < std::abs(best->end_ns - time_ns)))
      best = &*at;
  }
  return best;
}

}  // namespace

const DeviceSampleRecord* SampleAt(const DeviceState& device, uint64_t version, int64_t time_ns) {
  const DeviceSampleRecord* best = Nearest(
      device.samples, version, time_ns,
      [](const DeviceSampleRecord& sample) { return JudgeSample(sample).in_transit != 0 ? 1 : 0; });
  // Bytes counted early by the ledger cannot be shown as a row: no row is negative.
  return best != nullptr && JudgeSample(*best).in_transit < 0 ? nullptr : best;
}

const ProcessSampleRecord* ProcessSampleAt(const Space& space, uint64_t version, int64_t time_ns) {
  return Nearest(space.samples, version, time_ns, [](const ProcessSampleRecord&) { return 0; });
}

}  // namespace vramscope::engine
