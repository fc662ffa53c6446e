// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/dimensions/report.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

uint64_t LeftBelowLimit(const tables::HostSampleRow& sample) {
  return sample.limit_bytes - std::min(sample.limit_bytes, sample.used_bytes);
}

util::Result<HostMemory> HostMemoryAt(const tables::Recording& recording,
                                      std::string at,
                                      const tables::HostSampleRow& sample) {
  HostMemory row;
  row.at = std::move(at);
  row.time_ns = sample.time_ns;
  row.processes = sample.processes;
  row.resident_bytes = sample.resident_bytes;
  row.shared_bytes = sample.shared_bytes;
  row.largest_pid = sample.largest_pid;
  row.largest_bytes = sample.largest_bytes;
  row.kills = recording.tables().host_samples.back().kills;
  if (sample.limit_bytes != 0) {
    row.limit_bytes = sample.limit_bytes;
    row.used_bytes = sample.used_bytes;
  }
  const tables::Tables& tables = recording.tables();
  Instants instants = AllAt(tables, sample.time_ns);
  bool has_host = false;
  for (size_t i = 0; i < instants.of_account.size(); ++i) {
    const tables::DeviceRow& device = RowOf(tables.devices, tables.accounts[i].device);
    const bool is_host = i != 0 && device.kind == tables::DeviceKind::kHost;
    has_host = has_host || is_host;
    if (!is_host)
      instants.of_account[i] = kNoTime;
  }
  if (!has_host)
    return row;
  VRAMSCOPE_ASSIGN_OR_RETURN(const LiveSet live, ReadLiveSet(recording, instants));
  ForEachLeaf(recording, live, [&](const Leaf& leaf) { row.pinned_bytes += leaf.bytes; });
  return row;
}

}  // namespace

util::Result<std::vector<HostMemory>> MakeHostMemory(const tables::Recording& recording) {
  const tables::HostSampleRow* peak = nullptr;
  const tables::HostSampleRow* fullest = nullptr;
  const tables::HostSampleRow* last = nullptr;
  for (const tables::HostSampleRow& sample : recording.tables().host_samples) {
    if (sample.processes == 0)
      continue;
    last = &sample;
    if (peak == nullptr || sample.resident_bytes > peak->resident_bytes)
      peak = &sample;
    if (sample.limit_bytes != 0 &&
        (fullest == nullptr || LeftBelowLimit(sample) < LeftBelowLimit(*fullest)))
      fullest = &sample;
  }
  std::vector<HostMemory> rows;
  for (const auto& [at, sample] :
       {std::pair("peak", peak), std::pair("fullest", fullest), std::pair("last", last)}) {
    if (sample == nullptr)
      continue;
    VRAMSCOPE_ASSIGN_OR_RETURN(HostMemory row, HostMemoryAt(recording, at, *sample));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace vramscope::query
