// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "resolve/ledger/base.h"
#include "resolve/ledger/records.h"
#include "util/containers/flat_map.h"

namespace vramscope::resolve {

// Small driver allocations share slabs: a 2 MiB page counts once as long as any of them lives in
// it. The slabs of an account are one segment.
class Slabs {
 public:
  explicit Slabs(LedgerBase& base) : base_(base) {}

  void Add(const DriverObject& object) { Change(object, true); }
  void Remove(const DriverObject& object) { Change(object, false); }
  // Blocks are cut out of it from here on: it is a segment of its own, and its bytes stand there.
  void Cut(const DriverObject& object);
  tables::SegmentId RowOf(uint32_t account);

 private:
  struct OfAccount {
    util::FlatMap pages;  // page -> how many live in it
    uint64_t bytes = 0;
    uint64_t cut_bytes = 0;  // of them, in segments
    int64_t slack_bytes = 0;
    tables::SegmentId row;
    uint32_t counter = kNoIndex;  // what they hold, but for that
  };

  void Change(const DriverObject& object, bool add);
  void CountHeld(uint32_t account);

  LedgerBase& base_;
  PerAccount<OfAccount> accounts_;
};

}  // namespace vramscope::resolve
