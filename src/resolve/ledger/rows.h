// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "resolve/ledger/base.h"
#include "resolve/ledger/segments.h"
#include "resolve/ledger/slabs.h"

namespace vramscope::resolve {

// Makes rows: of a block or a driver object, for as long as nothing about it changed.
class RowMaker {
 public:
  RowMaker(LedgerBase& base, Segments& segments, Slabs& slabs)
      : base_(base), segments_(segments), slabs_(slabs) {}

  // What is known of who asked for it.
  void FillOrigin(const trace::EventContext& at,
                  tables::StackId stack,
                  tables::StackId native,
                  uint64_t sequence,
                  Origin* origin);
  // All about it was so until now, and is no longer. `freed`: its lifetime ends.
  void End(Block* block, uint32_t account, bool freed, std::span<const Stretch> stretches = {});
  void End(DriverObject* object, bool freed);
  // What a segment's free bytes have in common with the memory behind it.
  SiteKey KeyOfBacking(const DriverObject& object) const;
  // What arrays take is known once all is read.
  void EndArrays(const std::vector<price::DevicePrices>& prices);

 private:
  // A row whose bytes are not known yet.
  struct ArrayRow {
    tables::AllocationRow row;
    SiteKey key;
    trace::DeviceId device = trace::kNoDevice;
    uint32_t number = 0;     // among the arrays of the device
    uint64_t size = 0;       // asked for
    uint64_t requested = 0;  // of them, by the program's own word; 0: it says nothing
  };

  SiteKey KeyOf(const DriverObject& object) const;
  void AddShares(const tables::AllocationRow& whole,
                 SiteKey key,
                 const std::vector<Names::Share>& shares);
  void AddStretches(const tables::AllocationRow& whole,
                    SiteKey key,
                    std::span<const Stretch> stretches);
  // What the end of the program frees is what the program kept.
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
