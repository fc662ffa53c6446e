// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "resolve/ledger/base.h"
#include "resolve/ledger/segments.h"

namespace vramscope::resolve {

// Makes rows of blocks and driver objects. A row lasts until something about its memory changes.
class RowMaker {
 public:
  RowMaker(LedgerBase& base, Segments& segments, Slabs& slabs)
      : base_(base), segments_(segments), slabs_(slabs) {}

  // Fills in the call site and purpose of an allocation.
  void FillOrigin(const trace::EventContext& at,
                  tables::StackId stack,
                  tables::StackId native,
                  uint64_t sequence,
                  Origin* origin);
  // Ends the current row. `freed`: the memory's lifetime ends too.
  void End(Block* block, uint32_t account, bool freed, std::span<const Stretch> stretches = {});
  void End(DriverObject* object, bool freed);
  // The key of a segment's free bytes, by the object that backs the segment.
  SiteKey KeyOfBacking(const DriverObject& object) const;
  // Writes the rows of arrays, whose bytes are known after all events.
  void EndArrays(const std::vector<price::DevicePrices>& prices);

 private:
  // A row with unknown bytes.
  struct ArrayRow {
    tables::AllocationRow row;
    SiteKey key;
    trace::DeviceId device = trace::kNoDevice;
    uint32_t number = 0;     // among the arrays of the device
    uint64_t size = 0;       // asked for
    uint64_t requested = 0;  // of these, by the program; 0: unknown
  };

  SiteKey KeyOf(const DriverObject& object) const;
  void AddShares(const tables::AllocationRow& whole,
                 SiteKey key,
                 const std::vector<Names::Share>& shares);
  void AddStretches(const tables::AllocationRow& whole,
                    SiteKey key,
                    std::span<const Stretch> stretches);
  // Memory freed by the program's teardown counts as kept.
  bool IsTornDown(trace::ProcessId process) const {
    return process.value < base_.progress.processes.size() &&
           base_.progress.processes[process.value].torn_down;
  }
  int64_t EndNs() const { return base_.progress.finished ? tables::kNever : base_.progress.now_ns; }

  LedgerBase& base_;
  Segments& segments_;
  Slabs& slabs_;
  std::vector<ArrayRow> arrays_;
};

}  // namespace vramscope::resolve
