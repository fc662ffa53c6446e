// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger/rows.h"

#include <algorithm>

#include "resolve/driver/pricing.h"

namespace vramscope::resolve {
namespace {

// PyTorch and XLA divide their driver allocations into blocks; before the first block the memory is
// unused.
Part PartOfObject(const DriverObject& object) {
  const bool to_be_cut =
      object.owner == Owner::kPyTorch && !object.small && IsLinear(object.memory);
  return to_be_cut || object.of_pool ? Part::kUncut : PartOfMemory(object.memory);
}

// `size` was allocated; the program requested `requested` of it (0: all).
void SetBytes(uint64_t priced, uint64_t size, uint64_t requested, tables::AllocationRow* row) {
  const uint64_t base = std::min(size, priced);
  row->bytes = priced;
  row->rounding_bytes = priced - base;
  if (requested != 0)
    row->rounding_bytes += base - std::min(base, requested);
}

}  // namespace

void RowMaker::FillOrigin(const trace::EventContext& at,
                          tables::StackId stack,
                          tables::StackId native,
                          uint64_t sequence,
                          Origin* origin) {
  base_.phases.OnAllocated(at, stack, native, sequence, origin);
  origin->module_epoch = base_.progress.processes[at.process.value].modules_gone;
}

void RowMaker::End(Block* block, uint32_t account, bool freed, std::span<const Stretch> stretches) {
  const trace::ProcessId process = base_.accounts[account].process;
  base_.phases.Decide(process, base_.names, freed && !IsTornDown(process),
                      block->owner == Owner::kPyTorch, block->size, &block->origin);
  const Origin& origin = block->origin;
  SiteKey key;
  key.account = base_.accounts.RowOf(account).value;
  key.owner = block->owner;
  key.part = origin.purpose == Purpose::kPrior && origin.names == 0 ? Part::kBeforeRecording
                                                                    : Part::kAllocated;
  key.category = origin.category;
  key.without_phases = origin.without_phases;
  key.phase = origin.shown_phase();
  key.holding = Holding::kBlock;
  key.names = origin.names;
  key.module_epoch = origin.module_epoch;
  key.scope = origin.scope;
  key.forward = origin.forward;
  key.thread = block->thread;
  key.stack = block->stack;
  key.native = block->native;
  const Segment& segment = segments_[block->segment];
  // Its allocator treats it as device memory.
  if (segment.stands_for != 0) {
    key.account = base_.accounts.RowOf(segment.account).value;
    key.stands_for = segment.stands_for;
  }
  const uint64_t requested = origin.names == 0 ? 0 : base_.names.set(origin.names).requested;
  tables::AllocationRow row;
  row.begin_ns = row.alloc_ns = block->alloc_ns;
  row.end_ns = EndNs();
  row.address = block->address;
  row.bytes = block->size;
  row.rounding_bytes = requested == 0 ? 0 : block->size - std::min(block->size, requested);
  row.site = base_.writer.SiteOf(key, block->alloc_ns);
  row.segment = segment.row;
  if (!stretches.empty()) [[unlikely]]
    return AddStretches(row, key, stretches);
  if (origin.names == 0 || requested == 0)
    return base_.writer.Add(row);
  AddShares(row, key, base_.names.SharesOf(process, origin.names, std::min(row.bytes, requested)));
}

// Each parameter of a flat buffer has a row; padding is a row of all of them.
void RowMaker::AddShares(const tables::AllocationRow& whole,
                         SiteKey key,
                         const std::vector<Names::Share>& shares) {
  tables::AllocationRow rest = whole;
  const auto cut = [&](uint64_t bytes, tables::SiteId site) {
    tables::AllocationRow part = rest;
    part.bytes = bytes;
    part.rounding_bytes = 0;
    part.site = site;
    base_.writer.Add(part);
    rest.address += bytes;
    rest.bytes -= bytes;
  };
  for (const Names::Share& share : shares) {
    if (const uint64_t gap = whole.address + share.offset - rest.address; gap > 0)
      cut(gap, whole.site);
    key.names = share.set;
    const tables::SiteId site = base_.writer.SiteOf(key, whole.alloc_ns);
    // The last has the rounding.
    if (share.bytes == rest.bytes - rest.rounding_bytes) {
      rest.site = site;
      break;
    }
    cut(share.bytes, site);
  }
  base_.writer.Add(rest);
}

// Backed and unbacked bytes are separate rows. Rounding is at the end of a block.
void RowMaker::AddStretches(const tables::AllocationRow& whole,
                            SiteKey key,
                            std::span<const Stretch> stretches) {
  key.unbacked = 1;
  const tables::SiteId unbacked_site = base_.writer.SiteOf(key, whole.alloc_ns);
  for (size_t i = 0; i < stretches.size(); ++i) {
    const Stretch& stretch = stretches[i];
    tables::AllocationRow backed = whole;
    backed.begin_ns = stretch.begin_ns;
    if (i + 1 < stretches.size())
      backed.end_ns = stretches[i + 1].begin_ns;
    tables::AllocationRow unbacked = backed;
    unbacked.site = unbacked_site;
    unbacked.bytes = stretch.unbacked_bytes;
    backed.bytes -= unbacked.bytes;
    tables::AllocationRow& tail = stretch.unbacked_tail ? unbacked : backed;
    tables::AllocationRow& rest = stretch.unbacked_tail ? backed : unbacked;
    tail.rounding_bytes = std::min(tail.bytes, whole.rounding_bytes);
    rest.rounding_bytes = whole.rounding_bytes - tail.rounding_bytes;
    if (backed.bytes != 0 || unbacked.bytes == 0)
      base_.writer.Add(backed);
    if (unbacked.bytes != 0)
      base_.writer.Add(unbacked);
  }
}

SiteKey RowMaker::KeyOf(const DriverObject& object) const {
  const Origin& origin = object.origin;
  SiteKey key;
  key.account = base_.accounts.RowOf(object.account).value;
  key.owner = object.owner;
  key.part = PartOfObject(object);
  key.category = origin.category;
  key.without_phases = origin.without_phases;
  key.phase = origin.shown_phase();
  key.names = origin.names;
  key.module_epoch = origin.module_epoch;
  key.api = object.api;
  key.scope = origin.scope;
  key.thread = object.thread;
  key.stack = object.stack;
  key.native = object.native;
  key.forward = origin.forward;
  key.stands_for = object.stands_for;
  key.maker = object.maker;
  key.stream = object.memory == format::MemoryKind::kAsync ? object.stream + 1 : 0;
  return key;
}

void RowMaker::End(DriverObject* object, bool freed) {
  const Account& account = base_.accounts[object->account];
  // PyTorch's stream-ordered backend has no blocks: its driver allocations are the tensors.
  const bool by_phase =
      object->owner == Owner::kPyTorch && object->memory == format::MemoryKind::kAsync;
  base_.phases.Decide(account.process, base_.names, freed && !IsTornDown(account.process), by_phase,
                      object->size, &object->origin);
  SiteKey key = KeyOf(*object);
  tables::AllocationRow row;
  row.begin_ns = object->row_ns;
  row.alloc_ns = object->alloc_ns;
  row.end_ns = EndNs();
  row.address = object->address;
  object->row_ns = base_.progress.now_ns;
  const uint64_t requested = object->backing ? 0 : base_.names.set(object->origin.names).requested;
  switch (object->kind) {
    case ObjectKind::kHandle:
      row.bytes = object->priced - std::min(object->priced, object->backing_bytes);
      if (row.bytes == 0 && object->priced != 0)
        return;
      break;
    case ObjectKind::kMapping:
      if (!object->backing)
        return;
      row.bytes = object->accounted;
      break;
    case ObjectKind::kMemory:
      if (object->array != kNoIndex) {
        arrays_.push_back({row, key, account.device, object->array, object->size, requested});
        return;
      }
      SetBytes(object->priced, object->size, requested, &row);
      break;
  }
  if (object->memory == format::MemoryKind::kAsync) {
    row.segment = segments_.RowOf(object->segment);
    key.pool_names = segments_[object->segment].names;
  } else if (object->small) {
    row.segment = slabs_.RowOf(object->account);
  }
  if (object->backing) {
    row.segment = segments_.RowOf(object->segment);
    key.holding = Holding::kBacking;
    if (!segments_[object->segment].of_program)
      key.owner = Owner::kPyTorch;
    key.part = Part::kCached;
  }
  row.site = base_.writer.SiteOf(key, object->alloc_ns);
  base_.writer.Add(row);
}

void RowMaker::EndArrays(const std::vector<price::DevicePrices>& prices) {
  for (ArrayRow& array : arrays_) {
    const price::ArrayPrice& price =
        prices[static_cast<size_t>(array.device.value)].arrays[array.number];
    SetBytes(static_cast<uint64_t>(price.bytes), array.size, array.requested, &array.row);
    if (price.by_readings)
      array.key.estimated = tables::Estimated::kByFreeMemory;
    array.row.site = base_.writer.SiteOf(array.key, array.row.alloc_ns);
    base_.writer.Add(array.row);
  }
}

SiteKey RowMaker::KeyOfBacking(const DriverObject& object) const {
  SiteKey key = KeyOf(object);
  key.phase = format::Phase::kNone;
  key.names = 0;
  key.module_epoch = 0;
  key.scope = {};
  // A Python stack already shows the call site.
  if (key.stack.value != 0)
    key.forward = {};
  key.stream = 0;
  return key;
}

}  // namespace vramscope::resolve
