// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger/slabs.h"

#include <algorithm>

#include "resolve/driver/pricing.h"

namespace vramscope::resolve {

void Slabs::Change(const DriverObject& object, bool add) {
  OfAccount& slabs = accounts_[object.account];
  const uint64_t first = object.address >> kDriverPageBits;
  const uint64_t last =
      (object.address + std::max<uint64_t>(object.size, 1) - 1) >> kDriverPageBits;
  for (uint64_t page = first; page <= last; ++page) {
    uint32_t& live = slabs.pages.FindOrAdd(page);
    if (add)
      live = live == util::FlatMap::kNone ? 1 : live + 1;
    else
      --live;
    if (live == 0 || live == util::FlatMap::kNone - 1)
      slabs.pages.Erase(page);
  }
  slabs.bytes += add ? object.priced : -object.priced;
  if (object.backing)
    slabs.cut_bytes += add ? object.priced : -object.priced;
  const auto pages_bytes = static_cast<int64_t>(slabs.pages.size() * kDriverPageBytes);
  const int64_t slack = std::max<int64_t>(0, pages_bytes - static_cast<int64_t>(slabs.bytes));
  base_.Move(object.account, slack - slabs.slack_bytes);
  slabs.slack_bytes = slack;
  CountHeld(object.account);
}

void Slabs::Cut(const DriverObject& object) {
  accounts_[object.account].cut_bytes += object.priced;
  CountHeld(object.account);
}

void Slabs::CountHeld(uint32_t account) {
  OfAccount& slabs = accounts_[account];
  if (slabs.counter == kNoIndex)
    slabs.counter = base_.counters.AddOfSegment(account, RowOf(account));
  const auto held = static_cast<int64_t>(slabs.pages.size() * kDriverPageBytes - slabs.cut_bytes);
  base_.counters.Step(slabs.counter, held - base_.counters[slabs.counter].bytes);
}

tables::SegmentId Slabs::RowOf(uint32_t account) {
  OfAccount& slabs = accounts_[account];
  if (slabs.row.value != 0)
    return slabs.row;
  SiteKey key;
  key.account = base_.accounts.RowOf(account).value;
  key.owner = kDriverOwned;
  key.part = Part::kSlabSlack;
  key.category = key.without_phases = PartCategory(key.part);
  tables::SegmentRow row;
  row.site = base_.writer.SiteOf(key, base_.progress.now_ns);
  row.part_in_use = Part::kSlabSlack;
  row.begin_ns = base_.progress.now_ns;
  row.end_ns = tables::kNever;
  return slabs.row = base_.writer.AddSegment(row);
}

}  // namespace vramscope::resolve
