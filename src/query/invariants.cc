// SPDX-License-Identifier: Apache-2.0
#include "query/invariants.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "query/instant.h"
#include "query/live_set.h"
#include "query/residual.h"

namespace vramscope::query {
namespace {

using tables::SampleRow;

Invariant OfViolations(const tables::Recording& recording,
                       tables::InvariantKind kind,
                       const char* name,
                       const char* what) {
  Invariant invariant{name, true, ""};
  for (const tables::ViolationRow& row : recording.tables().violations) {
    if (row.invariant != static_cast<uint8_t>(kind) || row.count == 0)
      continue;
    invariant.holds = false;
    invariant.detail = std::to_string(row.count) + " times" + what +
                       "; first: " + std::string(recording.string(row.first));
  }
  return invariant;
}

std::string DeviceText(const tables::Recording& recording, tables::DeviceId device) {
  const auto& devices = recording.tables().devices;
  const tables::DeviceRow& row = devices[device.value < devices.size() ? device.value : 0];
  return row.index < 0 ? "the host's memory" : "GPU " + std::to_string(row.index);
}

bool IsWithinLimit(const SampleRow& sample) {
  return static_cast<uint64_t>(std::abs(JudgeSample(sample).residual_bytes)) <=
         ResidualLimit(sample);
}

// The one whose residual goes farthest beyond what is small; null without samples.
const SampleRow* WorstOf(const std::vector<SampleRow>& samples) {
  const auto beyond = [](const SampleRow& sample) {
    return std::abs(JudgeSample(sample).residual_bytes) -
           static_cast<int64_t>(ResidualLimit(sample));
  };
  const SampleRow* worst = nullptr;
  for (const SampleRow& sample : samples) {
    if (sample.counted != 0 && (worst == nullptr || beyond(sample) > beyond(*worst)))
      worst = &sample;
  }
  return worst;
}

std::string MismatchText(const tables::Recording& recording,
                         const char* what,
                         tables::DeviceId device,
                         uint64_t rows,
                         int64_t ledger) {
  if (static_cast<int64_t>(rows) == ledger)
    return {};
  return std::string(what) + " of " + DeviceText(recording, device) + ": rows " +
         std::to_string(rows) + ", ledger " + std::to_string(ledger);
}

// The rows add up to what is stored of the peaks and of some samples; what does not, in words.
util::Result<std::string> FindWrongSum(const tables::Recording& recording,
                                       const DeviceSums& peak_sums) {
  const tables::Tables& tables = recording.tables();
  for (const auto& [device, sum] : peak_sums) {
    for (const tables::PeakRow& peak : tables.peaks) {
      if (peak.device != device)
        continue;
      std::string text =
          MismatchText(recording, "peak", device, sum, static_cast<int64_t>(peak.bytes));
      if (!text.empty())
        return text;
    }
  }
  if (tables.samples.empty())
    return std::string();
  for (const SampleRow* sample :
       {WorstOf(tables.samples), &tables.samples[tables.samples.size() / 2]}) {
    if (sample == nullptr || sample->device.value >= tables.devices.size())
      continue;
    const auto totals = DeviceTotals(recording, AllAt(tables, sample->time_ns));
    if (!totals.ok())
      return totals.status();
    const std::string what = "NVML's sample at @" + std::to_string(sample->time_ns);
    std::string text = MismatchText(recording, what.c_str(), sample->device,
                                    (*totals)[sample->device.value], sample->ledger_bytes);
    if (!text.empty())
      return text;
  }
  return std::string();
}

Invariant OfNvml(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  Invariant invariant{"rows + residual = NVML at every sample", true, ""};
  const SampleRow* worst = WorstOf(tables.samples);
  if (worst != nullptr && !IsWithinLimit(*worst)) {
    const auto beyond = std::count_if(
        tables.samples.begin(), tables.samples.end(),
        [](const SampleRow& sample) { return sample.counted != 0 && !IsWithinLimit(sample); });
    const auto counted = std::count_if(tables.samples.begin(), tables.samples.end(),
                                       [](const SampleRow& sample) { return sample.counted != 0; });
    invariant.holds = false;
    invariant.detail =
        std::to_string(beyond) + " of " + std::to_string(counted) +
        " samples are off by more than 4 MiB and 0.1 %; worst: " +
        DeviceText(recording, worst->device) + " at @" + std::to_string(worst->end_ns) + ": NVML " +
        std::to_string(worst->used_bytes) + ", rows " + std::to_string(worst->ledger_bytes) +
        ", calls under way explain -" + std::to_string(worst->low_bytes) + " to +" +
        std::to_string(worst->high_bytes);
    return invariant;
  }
  for (const tables::DeviceRow& device : tables.devices) {
    if (device.reading_offset_bytes != 0) {
      invariant.detail +=
          (invariant.detail.empty() ? "" : "; ") + std::string("cuMemGetInfo reads ") +
          std::to_string(device.reading_offset_bytes) + " bytes more than NVML, taken into account";
    }
  }
  if (tables.samples.empty())
    invariant.detail = "no NVML samples in this trace";
  return invariant;
}

}  // namespace

util::Status CheckInvariants(const tables::Recording& recording,
                             const DeviceSums& peak_sums,
                             Report* report) {
  Invariant sums =
      OfViolations(recording, tables::InvariantKind::kOverfullSegment, "children sum to the parent",
                   " more blocks than their segment holds");
  const auto wrong = FindWrongSum(recording, peak_sums);
  if (!wrong.ok())
    return wrong.status();
  if (!wrong->empty()) {
    sums.holds = false;
    sums.detail = *wrong;
  }
  report->invariants.push_back(std::move(sums));
  report->invariants.push_back(
      OfViolations(recording, tables::InvariantKind::kFreedTwice, "nothing is freed twice", ""));
  report->invariants.push_back(OfViolations(recording, tables::InvariantKind::kOutsideSegment,
                                            "no live block outside a live segment", ""));
  report->invariants.push_back(OfNvml(recording));
  return {};
}

}  // namespace vramscope::query
