// SPDX-License-Identifier: Apache-2.0
#include "differential/truth_log.h"

#include <time.h>

#include <cinttypes>

namespace differential {
namespace {

int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

void WriteInstant(FILE* file,
                  const InstantHeader& header,
                  const fake::Truth& truth,
                  const std::map<int, BlockBytes>& blocks) {
  std::fprintf(file, "%c %" PRIu64 " %" PRId64 " %s %d\n", kInstantLine, header.number,
               MonotonicNs(), header.call.c_str(), header.result);
  for (uint32_t i = 0; i < truth.device_count; ++i) {
    const fake::DeviceTruth& device = truth.devices[i];
    std::fprintf(file, "%c %u", kDeviceLine, i);
    for (const uint64_t value :
         {device.used, static_cast<uint64_t>(device.process_bytes),
          static_cast<uint64_t>(device.device_bytes), device.linear_asked, device.linear_charged,
          device.linear_count, device.array_charged, device.array_count, device.physical_bytes,
          device.physical_count, device.imported_count, device.pool_reserved, device.graph_reserved,
          device.graph_used, device.driver_bytes, device.contexts, device.uvm})
      std::fprintf(file, " %" PRIu64, value);
    const auto found = blocks.find(static_cast<int>(i));
    const BlockBytes bytes = found == blocks.end() ? BlockBytes() : found->second;
    std::fprintf(file, " %" PRIu64 " %" PRIu64 "\n", bytes.backed, bytes.unbacked);
  }
  for (uint32_t i = 0; i < truth.pool_count; ++i) {
    const fake::PoolTruth& pool = truth.pools[i];
    std::fprintf(file, "%c %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", kPoolLine,
                 pool.device, pool.handle, pool.reserved, pool.used, pool.allocations);
  }
  std::fprintf(file, "%c", kHostLine);
  for (const uint64_t value :
       {truth.pinned_bytes, truth.pinned_count, truth.registered_bytes, truth.registered_count,
        truth.managed_bytes, truth.managed_count, truth.capturing})
    std::fprintf(file, " %" PRIu64, value);
  std::fprintf(file, "\n");
}

}  // namespace differential
