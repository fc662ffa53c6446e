// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "query/dimensions/report.h"

namespace vramscope::query {
namespace {

// Whether less is left below the limit. Where the same 64th of it is left, the processes' memory
// decides: the group's figure falls only after a process has ended.
bool IsFuller(const tables::HostSampleRow& sample, const tables::HostSampleRow& other) {
  const auto left = [](const tables::HostSampleRow& of) {
    return (of.limit_bytes - std::min(of.limit_bytes, of.used_bytes)) / (of.limit_bytes / 64 + 1);
  };
  return left(sample) != left(other) ? left(sample) < left(other)
                                     : sample.resident_bytes > other.resident_bytes;
}

HostMemory HostMemoryAt(std::string at, const tables::HostSampleRow& sample, uint64_t kills) {
  HostMemory row;
  row.at = std::move(at);
  row.time_ns = sample.time_ns;
  row.processes = sample.processes;
  row.resident_bytes = sample.resident_bytes;
  row.shared_bytes = sample.shared_bytes;
  row.pinned_bytes = sample.pinned_bytes;
  row.largest_pid = sample.largest_pid;
  row.largest_bytes = sample.largest_bytes;
  row.kills = kills;
  if (sample.limit_bytes != 0) {
    row.limit_bytes = sample.limit_bytes;
    row.used_bytes = sample.used_bytes;
  }
  return row;
}

}  // namespace

std::vector<HostMemory> MakeHostMemory(const tables::Recording& recording) {
  const tables::HostSampleRow* peak = nullptr;
  const tables::HostSampleRow* fullest = nullptr;
  const tables::HostSampleRow* last = nullptr;
  for (const tables::HostSampleRow& sample : recording.tables().host_samples) {
    if (sample.processes == 0)
      continue;
    last = &sample;
    if (peak == nullptr || sample.resident_bytes > peak->resident_bytes)
      peak = &sample;
    if (sample.limit_bytes != 0 && (fullest == nullptr || IsFuller(sample, *fullest)))
      fullest = &sample;
  }
  std::vector<HostMemory> rows;
  for (const auto& [at, sample] :
       {std::pair("peak", peak), std::pair("fullest", fullest), std::pair("last", last)}) {
    if (sample != nullptr)
      rows.push_back(HostMemoryAt(at, *sample, recording.tables().host_samples.back().kills));
  }
  return rows;
}

}  // namespace vramscope::query
