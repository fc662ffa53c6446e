// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "import/builder.h"

namespace vramscope::imports {

// Allocations and frees at addresses become rows. What they contradict is counted by the names of
// format/losses.def.
class LiveBlocks {
 public:
  explicit LiveBlocks(Builder* builder) : builder_(*builder) {}

  // `space`: addresses of different ones have nothing to do with each other, as those of devices.
  // What lives at the address ends there.
  void Allocate(uint32_t space,
                uint64_t address,
                uint64_t bytes,
                tables::SiteId site,
                int64_t now_ns,
                tables::SegmentId segment = {});
  // The bytes that are freed; 0 where nothing lives there.
  uint64_t Free(uint32_t space, uint64_t address, int64_t now_ns);
  uint64_t live_bytes(uint32_t space) const;
  // The rest was never freed.
  void Finish();

 private:
  void End(const tables::AllocationRow& row, uint32_t space, int64_t now_ns);

  Builder& builder_;
  std::map<std::pair<uint32_t, uint64_t>, tables::AllocationRow> live_;
  std::map<uint32_t, uint64_t> live_bytes_;
};

}  // namespace vramscope::imports
