// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger/segments.h"

#include <algorithm>

#include "resolve/driver/pricing.h"

namespace vramscope::resolve {

uint32_t Segments::Add(SegmentKind kind, uint32_t account, uint64_t begin, uint64_t size) {
  const uint32_t index = segments_.Add();
  Segment& segment = segments_[index];
  segment.kind = kind;
  segment.account = account;
  segment.begin = begin;
  segment.end = begin + size;
  if (kind == SegmentKind::kReservation)
    segment.backed = std::make_unique<util::RangeSet>();
  tables::SegmentRow row;
  row.address = begin;
  row.size_bytes = size;
  row.begin_ns = base_.progress.now_ns;
  row.end_ns = tables::kNever;
  segment.row = base_.writer.AddSegment(row);
  return index;
}

void Segments::Back(uint32_t index, uint64_t begin, uint64_t end) {
  Segment& segment = segments_[index];
  segment.backed->Add(begin, end);
  if (segment.unbacked_bytes != 0)
    rebacked_.push_back({index, begin, end});
}

void Segments::Unback(uint32_t index, uint64_t begin, uint64_t end) {
  Segment& segment = segments_[index];
  segment.backed->Remove(begin, end);
  if (segment.live_bytes != 0)
    rebacked_.push_back({index, begin, end});
}

void Segments::BecomeReservation(uint32_t index) {
  Segment& segment = segments_[index];
  Change(segment, -static_cast<int64_t>(segment.held), 0, 0);
  segment.kind = SegmentKind::kReservation;
  segment.object = kNoIndex;
  segment.backed = std::make_unique<util::RangeSet>();
  rebacked_.push_back({index, segment.begin, segment.end});
}

void Segments::CountHeld(Segment& segment) {
  if (segment.held_counter == kNoIndex)
    segment.held_counter = base_.counters.AddOfSegment(segment.account, segment.row);
}

void Segments::SetHeld(Segment& segment, uint64_t bytes) {
  const auto change = static_cast<int64_t>(bytes - segment.held);
  base_.counters.Step(segment.held_counter, change);
  Change(segment, change, 0, 0);
}

void Segments::EndCounted(uint32_t account) {
  segments_.ForEach([&](uint32_t, Segment& segment) {
    if (segment.account == account && segment.held_counter != kNoIndex)
      SetHeld(segment, 0);
  });
}

void Segments::Describe(Segment& segment, SiteKey key) {
  key.account = base_.accounts.RowOf(segment.account).value;
  key.owner = segment.owner;
  // Free bytes of a private pool belong to its graph, even if the segment has live blocks.
  key.part = segment.is_private ? Part::kGraphPool : Part::kCached;
  key.category = key.without_phases = PartCategory(key.part);
  key.pool_names = segment.names;
  key.stands_for = segment.stands_for;
  const bool fragments = !segment.by_size && (segment.kind == SegmentKind::kAllocation ||
                                              segment.kind == SegmentKind::kReservation);
  tables::SegmentRow& row = base_.writer.segment(segment.row);
  row.site = base_.writer.SiteOf(key, base_.progress.now_ns);
  row.part_in_use = fragments && !segment.is_private ? Part::kFragmentation : key.part;
}

void Segments::Release(uint32_t index) {
  Segment& segment = segments_[index];
  if (segment.suballocated)
    Change(segment, -static_cast<int64_t>(segment.held), 0, 0);
  segment.object = kNoIndex;
  base_.writer.segment(segment.row).end_ns = base_.progress.now_ns;
  if (segment.live_count == 0)
    return segments_.Remove(index);
  segment.zombie = true;
  rebacked_.push_back({index, 0, UINT64_MAX});
}

uint64_t Segments::PyTorchBytes(uint32_t account) const {
  uint64_t bytes = 0;
  segments_.ForEach([&](uint32_t, const Segment& segment) {
    if (segment.account == account && segment.kind != SegmentKind::kDefault &&
        segment.kind != SegmentKind::kPool && segment.owner == Owner::kPyTorch)
      bytes += segment.held + segment.unbacked_bytes;
  });
  return bytes;
}

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
  key.owner = Owner::kDriver;
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
