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
  std::vector<std::pair<uint64_t, uint64_t>> sizes;  // |residual|, samples
  for (const DeviceSampleRecord& sample : device.samples) {
    if (!sample.counted)
      continue;
    const SampleVerdict verdict = JudgeSample(sample);
    if (statistics.samples == 0)
      statistics.worst_at_ns = sample.end_ns;
    statistics.samples += 1 + uint64_t{sample.repeats};
    statistics.samples_in_transit += verdict.explained_by_transit ? 1 : 0;
    sizes.emplace_back(static_cast<uint64_t>(std::abs(verdict.residual)),
                       1 + uint64_t{sample.repeats});
    if (std::abs(verdict.residual) > std::abs(statistics.worst_bytes)) {
      statistics.worst_bytes = verdict.residual;
      statistics.worst_at_ns = sample.end_ns;
    }
  }
  // The smallest figure that at least 99 % of the samples do not exceed.
  std::sort(sizes.begin(), sizes.end());
  const uint64_t wanted = (statistics.samples * 99 + 99) / 100;
  uint64_t seen = 0;
  for (const auto& [bytes, count] : sizes) {
    statistics.p99_bytes = bytes;
    if ((seen += count) >= wanted)
      break;
  }
  return statistics;
}

namespace {

// Bytes counted early by the ledger cannot be shown as a row: no row is negative.
bool Usable(const DeviceSampleRecord& sample) {
  return JudgeSample(sample).in_transit >= 0;
}
bool Usable(const ProcessSampleRecord&) {
  return true;
}
bool Clean(const DeviceSampleRecord& sample) {
  return JudgeSample(sample).in_transit == 0;
}
bool Clean(const ProcessSampleRecord&) {
  return true;
}

template <class Sample>
const Sample* Nearest(const std::vector<Sample>& samples,
                      uint64_t version,
                      int64_t total,
                      int64_t time_ns) {
  const Sample* best = nullptr;
  // The lower, the better: 0 is a clean sample of just this state.
  const auto rank = [&](const Sample& sample) {
    return (sample.version == version ? 0 : 2) + (Clean(sample) ? 0 : 1);
  };
  for (const Sample& sample : samples) {
    if (!Usable(sample) || (sample.version != version && sample.ledger != total))
      continue;
    const bool better = best == nullptr || rank(sample) < rank(*best) ||
                        (rank(sample) == rank(*best) &&
                         std::abs(sample.end_ns - time_ns) < std::abs(best->end_ns - time_ns));
    if (better)
      best = &sample;
  }
  return best;
}

}  // namespace

const DeviceSampleRecord* SampleAt(const DeviceState& device,
                                   uint64_t version,
                                   int64_t total,
                                   int64_t time_ns) {
  return Nearest(device.samples, version, total, time_ns);
}

const ProcessSampleRecord* ProcessSampleAt(const Space& space,
                                           uint64_t version,
                                           uint64_t total,
                                           int64_t time_ns) {
  return Nearest(space.samples, version, static_cast<int64_t>(total), time_ns);
}

}  // namespace vramscope::engine
