// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "resolve/ledger/base.h"
#include "resolve/ledger/segments.h"
#include "util/containers/flat_map.h"

namespace vramscope::resolve {

// Stream-ordered pools and graph memory. Readings give the bytes that they hold.
class Pools {
 public:
  Pools(LedgerBase& base, Segments& segments)
      : base_(base), segments_(segments), processes_(base.trace.processes().size()) {}

  void On(const trace::EventContext& at, const trace::PoolCreate& e);
  void On(const trace::EventContext& at, const trace::PoolDestroy& e);
  void On(const trace::EventContext& at, const trace::PoolReading& e);
  void Name(trace::ProcessId process, uint64_t pool, const MemoryName& name);
  // For allocations without a recorded pool.
  static constexpr uint64_t kUnnamed = UINT64_MAX;  // pool 0 is the graph memory
  uint32_t SegmentOf(trace::ProcessId process, uint32_t account, uint64_t pool, Owner owner);
  // An allocation of that segment was made or freed.
  void Allocate(uint32_t segment, uint64_t bytes);
  void Free(uint32_t segment, uint64_t bytes);
  // The process ended, and with it its graph memory.
  void End(uint32_t account);

 private:
  struct OfProcess {
    util::FlatMap segments;              // by handle
    std::map<uint64_t, uint32_t> names;  // by handle; also of pools that were not seen yet
  };
  struct Graphs {
    uint32_t used = kNoIndex;  // counters
    uint32_t cached = kNoIndex;
  };

  void SetGraphs(const trace::EventContext& at, uint32_t account, Part part, uint64_t bytes);

  LedgerBase& base_;
  Segments& segments_;
  std::vector<OfProcess> processes_;
  PerAccount<Graphs> graphs_;
};

}  // namespace vramscope::resolve
