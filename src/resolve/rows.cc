// SPDX-License-Identifier: Apache-2.0
// What becomes a row: a block or a driver allocation, for as long as nothing about it changed.
#include <algorithm>

#include "resolve/ledger.h"
#include "resolve/pricing.h"

namespace vramscope::resolve {
namespace {

// `size` was asked for, of which the program wants `requested` (0: all).
void SetBytes(uint64_t priced, uint64_t size, uint64_t requested, tables::AllocationRow* row) {
  const uint64_t base = std::min(size, priced);
  row->bytes = priced;
  row->rounding_bytes = priced - base;
  if (requested != 0)
    row->rounding_bytes += base - std::min(base, requested);
}

}  // namespace

void Ledger::EndRow(Block* block, uint32_t space_index, bool freed) {
  const Space& space = spaces_[space_index];
  Decide(space.process, freed, block);
  const Origin& origin = block->origin;
  SiteKey key;
  key.account = AccountOfSpace(space_index);
  key.owner = block->owner;
  key.part = origin.purpose == Purpose::kPrior && origin.names == 0 ? Part::kBeforeRecording
                                                                    : Part::kAllocated;
  key.category = origin.category;
  key.without_phases = origin.without_phases;
  key.phase = origin.phase;
  key.is_block = true;
  key.names = origin.names;
  key.module_epoch = origin.module_epoch;
  key.scope = origin.scope;
  key.forward = origin.forward;
  key.thread = block->thread;
  key.stack = block->stack;
  key.native = block->native;
  const uint64_t requested = origin.names == 0 ? 0 : names_.set(origin.names).requested;
  tables::AllocationRow row;
  row.begin_ns = row.alloc_ns = block->alloc_ns;
  row.end_ns = finished_ ? tables::kNever : now_ns_;
  row.address = block->address;
  row.bytes = block->size;
  row.rounding_bytes = requested == 0 ? 0 : block->size - std::min(block->size, requested);
  row.site = rows_.SiteOf(key, block->alloc_ns);
  row.segment = segments_[block->segment].row;
  rows_.Add(row);
}

SiteKey Ledger::KeyOf(const Holding& holding) const {
  const Origin& origin = holding.origin;
  SiteKey key;
  key.account = AccountOfSpace(holding.space);
  key.owner = holding.owner;
  key.part = PartOfHolding(holding);
  key.category = origin.category;
  key.without_phases = origin.without_phases;
  key.phase = origin.phase;
  key.names = origin.names;
  key.module_epoch = origin.module_epoch;
  key.api = holding.api;
  key.scope = origin.scope;
  key.thread = holding.thread;
  key.stack = holding.stack;
  key.native = holding.native;
  key.forward = origin.forward;
  key.stream = holding.memory == format::MemoryKind::kAsync ? holding.stream + 1 : 0;
  return key;
}

// All about it was so since `row_ns`, and is no longer. `freed`: its lifetime ends.
void Ledger::EndRow(Holding* holding, bool freed) {
  const Space& space = spaces_[holding->space];
  Decide(space.process, freed, holding);
  SiteKey key = KeyOf(*holding);
  tables::AllocationRow row;
  row.begin_ns = holding->row_ns;
  row.alloc_ns = holding->alloc_ns;
  row.end_ns = finished_ ? tables::kNever : now_ns_;
  row.address = holding->address;
  holding->row_ns = now_ns_;
  const uint64_t requested = holding->backing ? 0 : names_.set(holding->origin.names).requested;
  switch (holding->kind) {
    case HoldingKind::kHandle:
      row.bytes = holding->priced - std::min(holding->priced, holding->backing_bytes);
      if (row.bytes == 0 && holding->priced != 0)
        return;
      break;
    case HoldingKind::kMapping:
      if (!holding->backing)
        return;
      row.bytes = holding->accounted;
      break;
    case HoldingKind::kMemory:
      if (holding->array != kNoIndex) {
        array_rows_.push_back({row, key, space.device, holding->array, holding->size, requested});
        return;
      }
      SetBytes(holding->priced, holding->size, requested, &row);
      break;
  }
  if (holding->memory == format::MemoryKind::kAsync) {
    row.segment = segments_[holding->segment].row;
    key.pool_names = segments_[holding->segment].names;
  } else if (holding->small) {
    row.segment = space.slab_segment;
  }
  if (holding->backing) {
    row.segment = segments_[holding->segment].row;
    key.backing = true;
    if (!segments_[holding->segment].of_program)
      key.owner = kPyTorch;
    key.part = Part::kCached;
  }
  row.site = rows_.SiteOf(key, holding->alloc_ns);
  rows_.Add(row);
}

// What arrays take is known once all is read.
void Ledger::EndArrayRows() {
  for (ArrayRow& array : array_rows_) {
    const price::ArrayPrice& price =
        device_prices_[static_cast<size_t>(array.device.value)].arrays[array.number];
    SetBytes(static_cast<uint64_t>(price.bytes), array.size, array.requested, &array.row);
    if (price.by_readings)
      array.key.estimated = tables::Estimated::kByFreeMemory;
    array.row.site = rows_.SiteOf(array.key, array.row.alloc_ns);
    rows_.Add(array.row);
  }
}

// What the segment's free bytes stand under: the memory behind it, or the pool.
void Ledger::Describe(Segment& segment, const Holding* backing) {
  SiteKey key;
  if (backing != nullptr) {
    key = KeyOf(*backing);
    key.phase = format::Phase::kNone;
    key.names = 0;
    key.module_epoch = 0;
    key.scope = {};
    key.forward = {};
    key.stream = 0;
  }
  key.account = AccountOfSpace(segment.space);
  key.owner = segment.owner;
  key.part = Part::kCached;
  key.category = key.without_phases = Category::kCached;
  key.pool_names = segment.names;
  const bool fragments =
      segment.kind == SegmentKind::kAllocation || segment.kind == SegmentKind::kReservation;
  tables::SegmentRow& row = rows_.segment(segment.row);
  row.site = rows_.SiteOf(key, now_ns_);
  row.part_in_use = static_cast<uint8_t>(fragments ? Part::kFragmentation : Part::kCached);
}

tables::SegmentId Ledger::SlabSegment(uint32_t space) {
  if (spaces_[space].slab_segment.value != 0)
    return spaces_[space].slab_segment;
  SiteKey key;
  key.account = AccountOfSpace(space);
  key.owner = kDriverOwned;
  key.part = Part::kSlabSlack;
  key.category = key.without_phases = PartCategory(key.part);
  tables::SegmentRow row;
  row.site = rows_.SiteOf(key, now_ns_);
  row.part_in_use = static_cast<uint8_t>(Part::kSlabSlack);
  row.begin_ns = now_ns_;
  row.end_ns = tables::kNever;
  spaces_[space].slab_segment = rows_.AddSegment(row);
  return spaces_[space].slab_segment;
}

}  // namespace vramscope::resolve
