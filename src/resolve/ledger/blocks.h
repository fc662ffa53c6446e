// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "resolve/ledger/base.h"
#include "resolve/ledger/driver_objects.h"
#include "resolve/ledger/rows.h"
#include "resolve/ledger/segments.h"
#include "util/containers/flat_map.h"

namespace vramscope::resolve {

// Which recorded process each was started by.
class Ancestors {
 public:
  explicit Ancestors(const trace::Trace& trace)
      : parents_(trace.processes().size(), trace::kNoProcess) {
    std::multimap<uint32_t, size_t> by_pid;  // numbers are given out again
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

// Blocks of caching allocators and CPU tensors: the events that come by the ten million.
//
//   BlockAlloc -> live block at (account, address) -> BlockFree -> AllocationRow
//                    |  a name or a stream becomes known, memory below it comes or goes
//                    +-> a row that ends here, and the block goes on under another site
//
// It holds what is live: an entry a block, found by address. Ledger calls it for each event. Each
// block is in the segment that has its address, or in none. A free of what was never allocated is a
// counted loss, not a row.
class Blocks {
 public:
  Blocks(LedgerBase& base, Segments& segments, RowMaker& rows, DriverObjects& objects)
      : base_(base), segments_(segments), rows_(rows), objects_(objects), ancestors_(base.trace) {}

  void On(const trace::EventContext& at, const trace::BlockAlloc& e);
  void On(const trace::EventContext& at, const trace::PoolBlock& e);
  void On(const trace::EventContext& at, const trace::BlockFree& e);
  // Where the driver's events are not there, the allocator's own totals say what it holds; the
  // first of them also says what was live before the recording began.
  void On(const trace::EventContext& at, const trace::AllocatorTotals& e);
  // Recording goes on, or is paused; the event says what CPU tensors had then.
  void On(const trace::EventContext& at, const trace::State& e);
  // What stood before, in a process that was under way when its recording began: a block, or the
  // segment of PyTorch's that blocks are in.
  void On(const trace::EventContext& at, const trace::Prior& e);
  // Device memory was mapped below blocks, or taken away: their bytes stand in the ledger or do
  // not.
  void FollowMemory();
  // False where there is no block at its address.
  bool Name(const trace::EventContext& at,
            trace::DeviceId device,
            uint64_t address,
            const MemoryName& name);
  // Whether the process has a block there, on any device.
  bool Has(trace::ProcessId process, uint64_t address) const {
    return AccountOf(process, address) != kNoIndex;
  }
  // Whether a process that this one was forked from has a block there: a forked process has a copy
  // of its parent's model, and the memory is the parent's.
  bool IsOfAncestor(trace::ProcessId process, uint64_t address) const;
  // The process is gone.
  void End(uint32_t account);
  // All is read: what is live was never freed.
  void Finish();

 private:
  struct OfAccount {
    util::FlatMap numbers;  // by address
    util::Slab<Block> blocks;
    std::unordered_map<uint32_t, Stretches> stretches;  // of blocks that have some
    // Blocks by address, where no block came or went since it was made.
    std::vector<std::pair<uint64_t, uint32_t>> in_order;
    bool is_in_order = false;
    uint64_t bytes = 0;
    uint32_t default_segment = kNoIndex;  // of blocks in no segment that is known
    uint32_t program_segment = kNoIndex;  // the same for blocks of the program's own pools
    bool totals_seen = false;
  };

  // That has a block at the address, on any device.
  uint32_t AccountOf(trace::ProcessId process, uint64_t address) const;
  void Move(OfAccount& of, Segment& segment, const Block& block, int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(block.size);
    of.bytes += static_cast<uint64_t>(bytes);
    of.is_in_order = false;
    segments_.MoveBlock(segment, bytes, count);
  }
  void EndRow(uint32_t account, uint32_t block, bool freed);
  // So much of it has no memory from now on.
  void SetUnbacked(uint32_t account, uint32_t block);
  void FollowMemory(uint32_t account, const Segments::Rebacked& change);
  uint32_t DefaultSegment(uint32_t account, bool of_program);
  // The segment that the block is cut out of; kNoIndex where its bytes stand in the ledger already.
  uint32_t SegmentOf(uint32_t account, uint64_t address, uint64_t size, bool of_program);
  // A BlockAlloc, a PoolBlock, or a block that stood before.
  template <class Given>
  void Add(const trace::EventContext& at, const Given& e);
  void End(uint32_t account, uint32_t block, bool freed);
  // The same of one whose address is out of `numbers` already.
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
