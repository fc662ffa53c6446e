// SPDX-License-Identifier: Apache-2.0
// Recordings that begin in a process under way: what stood before is a row, with names where it has
// any, so that the ledger is NVML's figure from the start.
#include <algorithm>

#include "resolve/ledger.h"
#include "resolve/pricing.h"

namespace vramscope::resolve {
namespace {

using format::PriorKind;

int64_t Signed(uint64_t bytes) {
  return static_cast<int64_t>(bytes);
}

}  // namespace

void Ledger::OnPrior(const trace::Event& event) {
  if (event.subkind == static_cast<uint8_t>(PriorKind::kProcess)) {
    processes_[event.process.value].began_late = true;
    prices_.OnLateStart(event);
    for (size_t i = 0; i < trace_.devices().size(); ++i) {
      const trace::DeviceId device{static_cast<int16_t>(i)};
      if (prices_.HasFigure(event.process, device))
        SpaceIndex(event.process, device, event.time_ns);
    }
    return;
  }
  if (!ValidDevice(event.device) || event.address == 0 || event.size == 0 ||
      event.size > kLargestSize)
    return;
  if (event.subkind == static_cast<uint8_t>(PriorKind::kSegment))
    return OnPriorSegment(event);
  if (event.subkind != static_cast<uint8_t>(PriorKind::kBlock))
    return;
  // One that was given out while the snapshot was taken is known by that.
  const uint32_t space = SpaceIndex(event.process, event.device, event.time_ns);
  if (spaces_[space].block_index.Find(event.address) == FlatMap::kNone)
    OnBlockAlloc(event);
}

// A segment is one allocation of PyTorch's, as if it were made now out of what stood before.
void Ledger::OnPriorSegment(const trace::Event& event) {
  trace::Event alloc = event;
  alloc.kind = trace::EventKind::kAlloc;
  alloc.subkind = static_cast<uint8_t>(format::MemoryKind::kDevice);
  ProcessState& process = processes_[event.process.value];
  const uint32_t space_index = SpaceIndex(event.process, event.device, event.time_ns);
  if (process.holding_index[0].Find(event.address) != FlatMap::kNone ||
      process.mapping_index.Find(event.address) != FlatMap::kNone ||
      process.pages.Find(event.address) != FlatMap::kNone)
    return;
  spaces_[space_index].driver_events = true;
  const uint32_t index = StartHolding(process, alloc, space_index);
  process.holding_index[0].FindOrAdd(event.address) = index;
  Holding& holding = process.holdings[index];
  holding.owner = kPyTorch;
  holding.origin = {};
  holding.priced = PriceOf(format::MemoryKind::kDevice, event.size, 0);
  holding.segment = NewSegment(SegmentKind::kAllocation, space_index, event.address, event.size);
  Segment& segment = segments_[holding.segment];
  segment.held = event.size;
  segment.holding = index;
  segment.owner = kPyTorch;
  process.pages.Add(event.address, event.size, holding.segment);
  PriceHolding(holding, true);
  Suballocate(segment, spaces_[space_index], false);
  MoveInto(holding.segment);
}

// Blocks that were given out of it since the recording began stand with those of no known segment.
void Ledger::MoveInto(uint32_t segment_index) {
  Segment& segment = segments_[segment_index];
  Space& space = spaces_[segment.space];
  Segment& nowhere = segments_[space.default_segment];
  if (nowhere.live_count == 0)
    return;
  space.blocks.ForEach([&](uint32_t, Block& block) {
    if (block.segment != space.default_segment || block.address < segment.begin ||
        block.address >= segment.end)
      return;
    ChangeSegment(nowhere, 0, -Signed(block.size), -1);
    ChangeSegment(segment, 0, Signed(block.size), 1);
    block.segment = segment_index;
  });
}

uint64_t Ledger::SegmentBytes(uint32_t space_index) const {
  uint64_t bytes = 0;
  segments_.ForEach([&](uint32_t, const Segment& segment) {
    if (segment.space == space_index && segment.kind != SegmentKind::kDefault &&
        segment.kind != SegmentKind::kPool && segment.owner == kPyTorch)
      bytes += segment.held;
  });
  return bytes;
}

}  // namespace vramscope::resolve
