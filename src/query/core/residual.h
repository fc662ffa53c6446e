// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "query/dimensions/report.h"
#include "query/results.h"
#include "tables/recording.h"

// NVML's figures against the ledger's.
namespace vramscope::query {

// The devices that a report is about: GPUs that no recorded process touched say nothing about this
// recording, unless there is nothing else.
std::vector<tables::DeviceId> ShownDevices(const tables::Tables& tables);

// One sample: what is left unexplained, and what the calls under way explain.
struct SampleVerdict {
  int64_t residual_bytes = 0;
  int64_t in_transit_bytes = 0;  // used - ledger, as far as the calls under way allow
  bool explained_by_transit = false;
};
SampleVerdict JudgeSample(const tables::SampleRow& sample);
SampleVerdict JudgeSample(const tables::ProcessSampleRow& sample);

// A residual beyond this is not small: 0.1 % of NVML's figure or 4 MiB, whichever is larger.
uint64_t ResidualLimit(uint64_t used_bytes);

// The samples of one device in order of time, and when the driver changed what it has in use.
class DeviceSamples {
 public:
  DeviceSamples(const tables::Tables& tables, tables::DeviceId device);

  bool empty() const { return samples_.empty(); }
  const std::vector<const tables::SampleRow*>& all() const { return samples_; }
  // Counts the driver's changes up to an instant: between two of one version nothing moved.
  uint64_t VersionAt(int64_t time_ns) const;

  // Over those taken while a recorded process used the device; all but the figures of its peak.
  ResidualSummary Summarize() const;

  // The sample that shows the device at `version` with `total` bytes, around `time_ns`. First
  // choice: the nearest one without a change in between, preferably without calls under way. Second
  // choice: the nearest one at which the ledger had the same total. Null if neither exists.
  const tables::SampleRow* At(uint64_t version, uint64_t total, int64_t time_ns) const;
  // The same for a process on this device.
  const tables::ProcessSampleRow* AtProcess(tables::AccountId account,
                                            uint64_t version,
                                            uint64_t total,
                                            int64_t time_ns) const;

 private:
  const tables::Tables& tables_;
  std::vector<const tables::SampleRow*> samples_;
  std::vector<int64_t> changes_ns_;
};

// Of the whole recording, in order of time.
std::vector<Unexplained> FindUnexplained(const tables::Recording& recording);

// "+256.0 MiB since 5.20 s, at cuLaunchKernel in cm.py:8: no known cause"
std::string UnexplainedText(const tables::Recording& recording, const Unexplained& unexplained);

}  // namespace vramscope::query
