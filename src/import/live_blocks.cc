// SPDX-License-Identifier: Apache-2.0
#include "import/live_blocks.h"

namespace vramscope::imports {
namespace {

constexpr uint64_t kNodeBytes = sizeof(tables::AllocationRow) + 64;

}  // namespace

void LiveBlocks::End(const tables::AllocationRow& row, uint32_t space, int64_t now_ns) {
  tables::AllocationRow ended = row;
  ended.end_ns = now_ns;
  live_bytes_[space] -= row.bytes;
  builder_.Add(ended);
}

void LiveBlocks::Allocate(uint32_t space,
                          uint64_t address,
                          uint64_t bytes,
                          tables::SiteId site,
                          int64_t now_ns,
                          tables::SegmentId segment) {
  tables::AllocationRow row;
  row.begin_ns = row.alloc_ns = now_ns;
  row.end_ns = tables::kNever;
  row.address = address;
  row.bytes = bytes;
  row.site = site;
  row.segment = segment;
  const auto [at, added] = live_.try_emplace({space, address}, row);
  if (!added) {
    builder_.Lose("allocations at a live address", 1, at->second.bytes);
    End(at->second, space, now_ns);
    at->second = row;
  } else if (!builder_.budget().Charge("live blocks", 1, kNodeBytes)) {
    live_.erase(at);
    return;
  }
  live_bytes_[space] += bytes;
}

uint64_t LiveBlocks::Free(uint32_t space, uint64_t address, int64_t now_ns) {
  const auto at = live_.find({space, address});
  if (at == live_.end())
    return 0;
  const uint64_t bytes = at->second.bytes;
  End(at->second, space, now_ns);
  live_.erase(at);
  return bytes;
}

uint64_t LiveBlocks::live_bytes(uint32_t space) const {
  const auto found = live_bytes_.find(space);
  return found == live_bytes_.end() ? 0 : found->second;
}

void LiveBlocks::Finish() {
  for (const auto& [place, row] : live_)
    builder_.Add(row);
  live_.clear();
}

}  // namespace vramscope::imports
