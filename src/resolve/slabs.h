// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "resolve/base.h"
#include "resolve/flat_map.h"
#include "resolve/records.h"

namespace vramscope::resolve {

// Small driver allocations share slabs: a 2 MiB page counts once as long as any of them lives in
// it. The slabs of an account are one segment.
class Slabs {
 public:
  explicit Slabs(LedgerBase& base) : base_(base) {}

  void Add(const DriverObject& object) { Change(object, true); }
  void Remove(const DriverObject& object) { Change(object, false); }
  tables::SegmentId RowOf(uint32_t account);

 private:
  struct OfAccount {
    FlatMap pages;  // page -> how many live in it
    uint64_t bytes = 0;
    int64_t slack_bytes = 0;
    tables::SegmentId row;
    uint32_t counter = kNoIndex;  // what they hold
  };

  void Change(const DriverObject& object, bool add);

  LedgerBase& base_;
  PerAccount<OfAccount> accounts_;
};

}  // namespace vramscope::resolve
