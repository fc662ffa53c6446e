// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "resolve/ledger/base.h"
#include "resolve/ledger/driver_objects.h"
#include "resolve/ledger/rows.h"
#include "resolve/ledger/segments.h"
#include "util/containers/flat_map.h"

namespace vramscope::resolve {

// The recorded parent of each process.
class Ancestors {
 public:
  explicit Ancestors(const trace::Trace& trace)
      : parents_(trace.processes().size(), trace::kNoProcess) {
    std::multimap<uint32_t, size_t> by_pid;  // pids are reused
    for (size_t i = 0; i < parents_.size(); ++i)
      by_pid.emplace(trace.processes()[i].pid, i);
    for (size_t i = 0; i < parents_.size(); ++i) {
      const trace::Process& child = trace.processes()[i];
      int64_t latest_ns = INT64_MIN;
      const auto [first, last] = by_pid.equal_range(child.parent_pid);
      for (auto it = first; it != last; ++it) {
        const int64_t start_ns = trace.processes()[it->second].start_ns;
        if (it->second == i || start_ns > child.start_ns || start_ns < latest_ns)
          continue;
        latest_ns = start_ns;
        parents_[i] = trace::ProcessId{static_cast<uint16_t>(it->second)};
      }
    }
  }

  // kNoProcess: none that was recorded.
  trace::ProcessId ParentOf(trace::ProcessId process) const { return parents_[process.value]; }

 private:
  std::vector<trace::ProcessId> parents_;
};

// Blocks of caching allocators and CPU tensors. A recording can have tens of millions of their
// events.
//
//   BlockAlloc -> live block at (account, address) -> BlockFree -> AllocationRow
//                    |  a name or a stream becomes known, memory below it changes
//                    +-> a row ends here, and the block continues in another row
//
// Holds one entry for each live block, found by address. Ledger calls it for each event. A block
// belongs to the segment at its address, or to none. A free without an allocation is a counted
// loss, not a row.
class Blocks {
 public:
  Blocks(LedgerBase& base, Segments& segments, RowMaker& rows, DriverObjects& objects)
      : base_(base), segments_(segments), rows_(rows), objects_(objects), ancestors_(base.trace) {}

  void On(const trace::EventContext& at, const trace::BlockAlloc& e);
  void On(const trace::EventContext& at, const trace::PoolBlock& e);
  void On(const trace::EventContext& at, const trace::XlaBlock& e);
  // Tensors of replayed graphs are blocks, unless the allocator has a live block there.
  void On(const trace::EventContext& at, const trace::GraphTensor& e);
  void On(const trace::EventContext& at, const trace::BlockFree& e);
  // Without driver events, the allocator's totals give what it holds. The first totals also give
  // what was live before recording.
  void On(const trace::EventContext& at, const trace::AllocatorTotals& e);
  // Recording resumed or was paused. The event has the bytes of CPU tensors at that time.
  void On(const trace::EventContext& at, const trace::State& e);
  // Memory allocated before recording, in a process that was already running: a block, or a PyTorch
  // segment.
  void On(const trace::EventContext& at, const trace::Prior& e);
  // Device memory below blocks was mapped or unmapped, so their bytes count or do not count.
  void FollowMemory();
  // False if the address has no block.
  bool Name(const trace::EventContext& at,
            trace::DeviceId device,
            uint64_t address,
            const MemoryName& name);
  // The same for a block of XLA that is a leaf of a pytree.
  void NamePath(const trace::EventContext& at,
                trace::DeviceId device,
                uint64_t address,
                tables::StringId path);
  // Whether the process has a block there, on any device.
  bool Has(trace::ProcessId process, uint64_t address) const {
    return AccountOf(process, address) != kNoIndex;
  }
  // Whether an ancestor of the process has a block there. A forked process sees its parent's model,
  // but the memory is the parent's.
  bool IsOfAncestor(trace::ProcessId process, uint64_t address) const;
  // The process is gone.
  void End(uint32_t account);
  // All events are read: live blocks were never freed.
  void Finish();

 private:
  struct OfAccount {
    util::FlatMap numbers;  // by address
    util::Slab<Block> blocks;
    std::unordered_map<uint32_t, Stretches> stretches;  // by block
    // Blocks by address. Valid until a block is added or removed.
    std::vector<std::pair<uint64_t, uint32_t>> in_order;
    bool is_in_order = false;
    std::map<uint64_t, uint32_t> of_graphs;  // blocks of GraphTensor by address
    std::set<uint64_t> unplaced;             // blocks of the program's pools that are in no segment
    uint64_t bytes = 0;
    uint32_t default_segment = kNoIndex;  // of blocks in no known segment
    uint32_t program_segment = kNoIndex;  // the same for the program's own pools
    uint32_t xla_segment = kNoIndex;      // the last one with a block of XLA
    bool totals_seen = false;
  };

  // The account, on any device, that has a block at the address.
  uint32_t AccountOf(trace::ProcessId process, uint64_t address) const;
  void Move(OfAccount& of, Segment& segment, const Block& block, int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(block.size);
    of.bytes += static_cast<uint64_t>(bytes);
    of.is_in_order = false;
    segments_.MoveBlock(segment, bytes, count);
  }
  void EndRow(uint32_t account, uint32_t block, bool freed);
  // Updates how many of its bytes have no memory from now on.
  void SetUnbacked(uint32_t account, uint32_t block);
  void FollowMemory(uint32_t account, const Segments::Rebacked& change);
  uint32_t DefaultSegment(uint32_t account, bool of_program);
  // The segment that contains the block; kNoIndex if its bytes are already counted.
  uint32_t SegmentOf(uint32_t account, uint64_t address, uint64_t size, bool of_program);
  // The set of names with that path; the one that says most stays.
  uint32_t WithPath(uint32_t names, tables::StringId path);
  // A segment of XLA's pool with room for it, since its place is unknown; kNoIndex: none.
  uint32_t XlaSegmentOf(uint32_t account, uint64_t size);
  // The memory is given out again: tensors of graphs there have ended.
  void EndOfGraphs(uint32_t account, uint64_t address, uint64_t size);
  // `e`: a BlockAlloc, a PoolBlock, an XlaBlock, a GraphTensor, or a Prior block.
  template <class Given>
  void Add(const trace::EventContext& at, const Given& e);
  void End(uint32_t account, uint32_t block, bool freed);
  // The same for a block that is already erased from `numbers`.
  void EndErased(uint32_t account, uint32_t block, bool freed);
  void OnUnknownFree(const trace::EventContext& at, const trace::BlockFree& e, uint32_t account);
  void MoveInto(uint32_t segment);

  LedgerBase& base_;
  Segments& segments_;
  RowMaker& rows_;
  DriverObjects& objects_;
  const Ancestors ancestors_;
  PerAccount<OfAccount> accounts_;
};

}  // namespace vramscope::resolve
