// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "query/dimensions/dimensions.h"
#include "query/dimensions/report.h"

namespace vramscope::query {

std::vector<NvtxCounter> MakeNvtxCounters(const tables::Recording& recording) {
  constexpr size_t kMost = 100;
  const tables::Tables& tables = recording.tables();
  std::vector<NvtxCounter> counters(tables.nvtx_counters.size());
  for (const tables::NvtxSampleRow& sample : tables.nvtx_samples) {
    NvtxCounter& counter = counters[sample.counter.value];
    if (counter.samples++ == 0 || sample.bytes > counter.peak_bytes) {
      counter.peak_bytes = sample.bytes;
      counter.peak_ns = sample.time_ns;
    }
    counter.last_bytes = sample.bytes;
  }
  for (uint32_t id = 0; id < counters.size(); ++id)
    counters[id].id = tables::NvtxCounterId{id};
  std::erase_if(counters, [](const NvtxCounter& counter) {
    return counter.id.value == 0 || counter.samples == 0;
  });
  std::stable_sort(
      counters.begin(), counters.end(),
      [](const NvtxCounter& a, const NvtxCounter& b) { return a.peak_bytes > b.peak_bytes; });
  counters.resize(std::min(counters.size(), kMost));
  for (NvtxCounter& counter : counters) {
    const tables::NvtxCounterRow& row = tables.nvtx_counters[counter.id.value];
    counter.name = recording.string(row.name);
    if (row.process.value != 0)
      counter.pid = PidOf(recording, row.process);
    if (row.device.value != 0)
      counter.device = tables.devices[row.device.value].index;
  }
  return counters;
}

}  // namespace vramscope::query
