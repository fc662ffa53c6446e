// SPDX-License-Identifier: Apache-2.0
// What the driver gives: allocations, physical handles and their mappings, pools.
#include <algorithm>
#include <iterator>

#include "resolve/ledger.h"
#include "resolve/pricing.h"

namespace vramscope::resolve {
namespace {

NumberSpace NumberSpaceOf(format::MemoryKind kind) {
  switch (kind) {
    case format::MemoryKind::kArray:
      return kArrays;
    case format::MemoryKind::kHostRegistered:
      return kRegistered;
    default:
      return kAddresses;
  }
}

format::MemoryKind MemoryKindOf(const trace::Event& event) {
  return event.subkind <= static_cast<uint8_t>(format::MemoryKind::kExternal)
             ? static_cast<format::MemoryKind>(event.subkind)
             : format::MemoryKind::kExternal;
}

int64_t Signed(uint64_t bytes) {
  return static_cast<int64_t>(bytes);
}

// Allocations whose pool was not named share one. Pool 0 is the graph memory.
constexpr uint64_t kUnnamedPool = UINT64_MAX;

}  // namespace

uint32_t Ledger::NewSegment(SegmentKind kind, uint32_t space, uint64_t begin, uint64_t size) {
  const uint32_t index = segments_.Add();
  Segment& segment = segments_[index];
  segment.kind = kind;
  segment.space = space;
  segment.begin = begin;
  segment.end = begin + size;
  tables::SegmentRow row;
  row.address = begin;
  row.size_bytes = size;
  row.begin_ns = now_ns_;
  row.end_ns = tables::kNever;
  segment.row = rows_.AddSegment(row);
  return index;
}

void Ledger::ChangeSegment(Segment& segment, int64_t held, int64_t live, int64_t count) {
  const int64_t free_before = Signed(segment.free_bytes());
  segment.held += static_cast<uint64_t>(held);
  segment.live_bytes += static_cast<uint64_t>(live);
  segment.live_count += static_cast<uint64_t>(count);
  Move(spaces_[segment.space], Signed(segment.free_bytes()) - free_before);
}

// What a reading says that it holds.
void Ledger::ChangeHeld(Segment& segment, int64_t bytes) {
  if (bytes == 0)
    return;
  counters_.Step(segment.held_counter, bytes, now_ns_);
  ChangeSegment(segment, bytes, 0, 0);
}

// Small allocations share slabs: a 2 MiB page counts once as long as any of them lives in it.
void Ledger::ChangeSlabs(Space& space, const Holding& holding, bool add) {
  const uint64_t first = holding.address >> kDriverPageBits;
  const uint64_t last =
      (holding.address + std::max<uint64_t>(holding.size, 1) - 1) >> kDriverPageBits;
  for (uint64_t page = first; page <= last; ++page) {
    uint32_t& live = space.slab_pages.FindOrAdd(page);
    if (add)
      live = live == FlatMap::kNone ? 1 : live + 1;
    else
      --live;
    if (live == 0 || live == FlatMap::kNone - 1)
      space.slab_pages.Erase(page);
  }
  space.small_bytes += add ? holding.priced : -holding.priced;
  const int64_t slack =
      std::max<int64_t>(0, Signed(space.slab_pages.size() * kDriverPageBytes - space.small_bytes));
  Move(space, slack - space.slab_slack);
  space.slab_slack = slack;
  if (space.slab_counter == kNoIndex) {
    Counter counter;
    counter.device = space.device;
    counter.space = static_cast<uint32_t>(&space - spaces_.data());
    counter.segment = SlabSegment(counter.space);
    space.slab_counter = counters_.Add(std::move(counter));
  }
  const int64_t held = Signed(space.slab_pages.size() * kDriverPageBytes);
  counters_.Step(space.slab_counter, held - counters_[space.slab_counter].bytes, now_ns_);
}

// Adds or takes away what the holding itself stands for, its segment's free bytes apart.
void Ledger::PriceHolding(const Holding& holding, bool add) {
  Space& space = spaces_[holding.space];
  const int64_t sign = add ? 1 : -1;
  if (holding.array != kNoIndex)
    prices_.MoveArray(space.process, space.device, sign * Signed(holding.priced), holding.array);
  else if (holding.backing)
    Move(space, sign * Signed(holding.priced - std::min(holding.size, holding.priced)));
  else
    Move(space, sign * Signed(holding.priced));
  if (holding.small)
    ChangeSlabs(space, holding, add);
}

uint32_t Ledger::StartHolding(ProcessState& process, const trace::Event& event, uint32_t space) {
  const uint32_t index = process.holdings.Add();
  Holding& holding = process.holdings[index];
  holding.self = index;
  holding.address = event.address;
  holding.size = event.size;
  holding.alloc_ns = holding.row_ns = event.time_ns;
  holding.life = next_life_++;
  holding.stream = event.detail;
  holding.context = event.context;
  holding.stack = event.stack;
  holding.native = event.native_stack;
  holding.thread = event.thread;
  holding.api = event.api;
  holding.space = space;
  holding.owner = owners_.Find(event.native_stack, event.stack);
  phases_.OnAllocated(event, &holding.origin);
  holding.origin.module_epoch = process.modules_gone;
  if (holding.origin.purpose == Purpose::kNone) {
    const Category category = CategoryOfOwner(owners_.name(holding.owner));
    if (category == Category::kCommunication)
      holding.origin.purpose = Purpose::kCommunication;
    else if (category == Category::kWorkspace)
      holding.origin.purpose = Purpose::kWorkspace;
  }
  return index;
}

void Ledger::OnAlloc(const trace::Event& event) {
  const format::MemoryKind kind = MemoryKindOf(event);
  const trace::DeviceId device_id = IsHostMemory(kind) ? host_device_ : event.device;
  if (!ValidDevice(device_id) || event.size > kLargestSize || event.value > kLargestSize)
    return;
  ProcessState& process = processes_[event.process.value];
  const uint32_t space = SpaceIndex(event.process, device_id, event.time_ns);
  if (!IsHostMemory(kind))
    spaces_[space].driver_events = true;
  prices_.NoteCall(device_id);
  FlatMap& holding_index = process.holding_index[NumberSpaceOf(kind)];
  if (const uint32_t old = holding_index.Find(event.address); old != FlatMap::kNone) {
    ++double_allocs_.count;
    double_allocs_.bytes += process.holdings[old].priced;
    EndHolding(process, old, true);
  }
  const uint32_t index = StartHolding(process, event, space);
  holding_index.FindOrAdd(event.address) = index;
  Holding& holding = process.holdings[index];
  holding.memory = kind;
  holding.priced = PriceOf(kind, event.size, event.value);
  holding.small = SharesSlab(kind, std::max(event.size, event.value));
  if (kind == format::MemoryKind::kAsync) {
    const uint64_t pool = event.value2 == 0 ? kUnnamedPool : event.value2;
    holding.segment = PoolSegment(process, space, pool, holding.owner);
    ChangeSegment(segments_[holding.segment], 0, Signed(holding.priced), 1);
  } else if (IsDeviceMemory(kind) && !holding.small) {
    holding.segment = NewSegment(SegmentKind::kAllocation, space, event.address, holding.size);
    Segment& segment = segments_[holding.segment];
    segment.held = std::min(holding.size, holding.priced);
    segment.owner = holding.owner;
    segment.holding = index;
    process.pages.Add(event.address, holding.size, holding.segment);
  }
  if (kind == format::MemoryKind::kArray && holding.priced != 0 && prices_.IsGpu(device_id))
    holding.array = prices_.NewArray(device_id);
  PriceHolding(holding, true);
  // Once blocks were seen, more of its memory is cached from the start.
  if (holding.segment != kNoIndex && holding.owner == kPyTorch && IsDeviceMemory(kind) &&
      spaces_[space].blocks_seen)
    Suballocate(segments_[holding.segment], spaces_[space], false);
}

void Ledger::OnFree(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  const format::MemoryKind kind = MemoryKindOf(event);
  // The free's entry point may serve several kinds; what was allocated there decides.
  FlatMap* index_map = &process.holding_index[NumberSpaceOf(kind)];
  uint32_t index = index_map->Find(event.address);
  // An array that is mapped out of imported memory stands with the addresses.
  if (index == FlatMap::kNone && kind == format::MemoryKind::kArray)
    index = process.holding_index[kAddresses].Find(event.address);
  if (index == FlatMap::kNone) {
    if (event.address == 0)
      return;
    if (FreedBefore(event.address)) {
      if (violations_.freed_twice++ == 0)
        violations_.first_freed_twice = "driver allocation";
      return;
    }
    ++unknown_frees_.count;
    return;
  }
  NoteFree(event.address);
  const trace::DeviceId device = spaces_[process.holdings[index].space].device;
  prices_.NoteCall(device);
  const Segment* segment = process.holdings[index].segment == kNoIndex
                               ? nullptr
                               : &segments_[process.holdings[index].segment];
  if (segment != nullptr && segment->kind == SegmentKind::kAllocation && segment->live_count > 0 &&
      !process.torn_down && violations_.outside_segment++ == 0) {
    violations_.first_outside_segment =
        std::to_string(segment->live_count) + " blocks of a segment that was freed";
  }
  EndHolding(process, index, true);
}

// Blocks that were never freed keep the record of a segment whose memory is gone.
void Ledger::ReleaseSegment(ProcessState& process, uint32_t index) {
  Segment& segment = segments_[index];
  if (segment.kind == SegmentKind::kAllocation)
    process.pages.Remove(segment.begin, segment.end - segment.begin);
  if (segment.suballocated)
    ChangeSegment(segment, -Signed(segment.held), 0, 0);
  segment.holding = kNoIndex;
  rows_.segment(segment.row).end_ns = now_ns_;
  if (segment.live_count > 0)
    segment.zombie = true;
  else
    segments_.Remove(index);
}

void Ledger::EndHolding(ProcessState& process, uint32_t index, bool freed) {
  EndRow(&process.holdings[index], freed);
  const Holding holding = process.holdings[index];
  if (holding.kind == HoldingKind::kHandle) {
    Move(spaces_[holding.space], -Signed(holding.priced));
    FlatMap& handles = process.holding_index[kHandles];
    if (handles.Find(holding.address) == index)
      handles.Erase(holding.address);
  } else {
    PriceHolding(holding, false);
    if (holding.segment != kNoIndex) {
      if (holding.memory == format::MemoryKind::kAsync) {
        ChangeSegment(segments_[holding.segment], 0, -Signed(holding.priced), -1);
        if (segments_[holding.segment].closing && segments_[holding.segment].live_count == 0)
          ChangeHeld(segments_[holding.segment], -Signed(segments_[holding.segment].held));
      } else {
        ReleaseSegment(process, holding.segment);
      }
    }
    process.holding_index[NumberSpaceOf(holding.memory)].Erase(holding.address);
  }
  process.holdings.Remove(index);
  if (holding.share != kNoIndex)
    LeaveShared(holding.share, spaces_[holding.space].process, index, holding.priced);
}

void Ledger::EndHoldingsOfContext(ProcessState& process, uint64_t context) {
  process.holdings.ForEach([&](uint32_t index, const Holding& holding) {
    if (holding.kind == HoldingKind::kMemory && holding.context == context &&
        holding.memory != format::MemoryKind::kAsync)
      EndHolding(process, index, true);
  });
}

// ---- physical handles
// -----------------------------------------------------------------------------

void Ledger::OnHandleCreate(const trace::Event& event) {
  if (!ValidDevice(event.device) || event.size > kLargestSize)
    return;
  ProcessState& process = processes_[event.process.value];
  const uint32_t space = SpaceIndex(event.process, event.device, event.time_ns);
  spaces_[space].driver_events = true;
  prices_.NoteCall(event.device);
  FlatMap& handles = process.holding_index[kHandles];
  if (const uint32_t old = handles.Find(event.address); old != FlatMap::kNone) {
    if (event.value != 0) {
      ++process.holdings[old].references;  // imported again, or into the process that made it
      return;
    }
    // The number is given out again: the old memory lives on only by its mappings.
    process.holdings[old].references = 0;
    handles.Erase(event.address);
    EndHandleIfUnused(process, old, true);
  }
  const uint32_t index = StartHolding(process, event, space);
  handles.FindOrAdd(event.address) = index;
  Holding& holding = process.holdings[index];
  holding.kind = HoldingKind::kHandle;
  holding.priced = event.value != 0 ? 0 : event.size;
  if (event.value != 0)
    holding.memory = format::MemoryKind::kIpcImport;
  Move(spaces_[space], Signed(holding.priced));
}

void Ledger::EndHandleIfUnused(ProcessState& process, uint32_t index, bool freed) {
  const Holding& handle = process.holdings[index];
  if (handle.references == 0 && handle.mappings == 0)
    EndHolding(process, index, freed);
}

void Ledger::OnHandleRelease(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  FlatMap& handles = process.holding_index[kHandles];
  const uint32_t index = handles.Find(event.address);
  if (index == FlatMap::kNone) {
    ++unknown_frees_.count;
    return;
  }
  Holding& handle = process.holdings[index];
  const trace::DeviceId device = spaces_[handle.space].device;
  prices_.NoteCall(device);
  if (handle.references > 0 && --handle.references == 0 && handle.mappings > 0)
    handles.Erase(event.address);  // the driver may give the number out again
  EndHandleIfUnused(process, index, true);
}

void Ledger::OnHandleRetain(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  FlatMap& handles = process.holding_index[kHandles];
  uint32_t index = handles.Find(event.address);
  if (index == FlatMap::kNone) {
    // Released, but alive by the mapping at this address.
    const uint32_t mapping = process.mapping_index.Find(event.value);
    if (mapping == FlatMap::kNone)
      return;
    index = process.holdings[mapping].handle;
    process.holdings[index].address = event.address;
    handles.FindOrAdd(event.address) = index;
  }
  ++process.holdings[index].references;
}

void Ledger::OnReserve(const trace::Event& event) {
  if (event.size == 0 || event.address + event.size < event.address)
    return;
  ProcessState& process = processes_[event.process.value];
  process.reservations[event.address] = {event.size, {}, false};
}

void Ledger::OnUnreserve(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  const auto found = process.reservations.find(event.address);
  if (found == process.reservations.end())
    return;
  for (const uint32_t segment : found->second.segments) {
    // Something is still mapped here where an unmapping was lost, or mapped elsewhere too.
    bool mapped = segments_[segment].held != 0;
    process.holdings.ForEach([&](uint32_t, const Holding& holding) {
      mapped |= holding.kind == HoldingKind::kMapping && holding.segment == segment;
    });
    if (!mapped)
      ReleaseSegment(process, segment);
  }
  process.reservations.erase(found);
}

// The segment of the reservation that the range lies in. Where none was seen, adjacent mappings
// make one.
uint32_t Ledger::ReservationFor(ProcessState& process,
                                uint32_t space,
                                uint64_t begin,
                                uint64_t size) {
  auto at = process.reservations.upper_bound(begin);
  if (at != process.reservations.begin()) {
    --at;
    const uint64_t end = at->first + at->second.size;
    if (begin < end || (at->second.implicit && begin == end)) {
      if (at->second.implicit)
        at->second.size = std::max(end, begin + size) - at->first;
      for (const uint32_t segment : at->second.segments) {
        if (segments_[segment].space == space)
          return segment;
      }
      const uint32_t segment =
          NewSegment(SegmentKind::kReservation, space, at->first, at->second.size);
      at->second.segments.push_back(segment);
      return segment;
    }
  }
  const uint32_t segment = NewSegment(SegmentKind::kReservation, space, begin, size);
  process.reservations[begin] = {size, {segment}, true};
  return segment;
}

void Ledger::OnMap(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  const uint32_t handle_index = process.holding_index[kHandles].Find(event.value);
  if (handle_index == FlatMap::kNone || event.address + event.size < event.address ||
      event.size > kLargestSize || process.mapping_index.Find(event.address) != FlatMap::kNone)
    return;
  const uint32_t space = process.holdings[handle_index].space;
  const uint32_t index = StartHolding(process, event, space);
  process.mapping_index.FindOrAdd(event.address) = index;
  Holding& mapping = process.holdings[index];
  Holding& handle = process.holdings[handle_index];
  mapping.kind = HoldingKind::kMapping;
  mapping.handle = handle_index;
  mapping.owner = handle.owner;
  mapping.segment = ReservationFor(process, space, event.address, event.size);
  // A handle mapped twice is there once.
  mapping.accounted = std::min(event.size, handle.priced - handle.accounted);
  handle.accounted += mapping.accounted;
  ++handle.mappings;
  if (handle.memory == format::MemoryKind::kIpcImport && handle.share == kNoIndex)
    JoinByMapping(event.process, handle_index, event.size);
  process.pages.Add(event.address, event.size, mapping.segment);
  Segment& segment = segments_[mapping.segment];
  if (segment.suballocated) {
    Move(spaces_[space], -Signed(mapping.accounted));
    EndRow(&handle, false);
    handle.backing_bytes += mapping.accounted;
    mapping.backing = true;
    Describe(segment, &mapping);
  } else {
    segment.owner = handle.owner;
  }
  ChangeSegment(segment, Signed(mapping.accounted), 0, 0);
}

void Ledger::EndMapping(ProcessState& process, uint32_t index, bool freed) {
  EndRow(&process.holdings[index], freed);
  const Holding mapping = process.holdings[index];
  ChangeSegment(segments_[mapping.segment], -Signed(mapping.accounted), 0, 0);
  Holding& handle = process.holdings[mapping.handle];
  if (mapping.backing) {
    Move(spaces_[mapping.space], Signed(mapping.accounted));
    EndRow(&handle, false);
    handle.backing_bytes -= mapping.accounted;
  }
  handle.accounted -= mapping.accounted;
  --handle.mappings;
  process.pages.Remove(mapping.address, mapping.size);
  process.mapping_index.Erase(mapping.address);
  process.holdings.Remove(index);
  EndHandleIfUnused(process, mapping.handle, freed);
}

// One call may take away several mappings.
void Ledger::OnUnmap(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  uint64_t address = event.address;
  const uint64_t end = event.address + event.size;
  while (address < end) {
    const uint32_t index = process.mapping_index.Find(address);
    if (index == FlatMap::kNone)
      break;
    const trace::DeviceId device = spaces_[process.holdings[index].space].device;
    prices_.NoteCall(device);
    address += std::max<uint64_t>(process.holdings[index].size, 1);
    EndMapping(process, index, true);
  }
}

// ---- pools
// ----------------------------------------------------------------------------------------

uint32_t Ledger::PoolSegment(ProcessState& process, uint32_t space, uint64_t pool, OwnerId owner) {
  uint32_t& segment = process.pools.FindOrAdd(pool);
  if (segment != FlatMap::kNone)
    return segment;
  segment = NewSegment(SegmentKind::kPool, space, 0, 0);
  segments_[segment].owner = owner;
  segments_[segment].suballocated = true;
  Counter counter;
  counter.device = spaces_[space].device;
  counter.space = space;
  counter.segment = segments_[segment].row;
  segments_[segment].held_counter = counters_.Add(std::move(counter));
  if (const auto name = process.pool_names.find(pool); name != process.pool_names.end())
    segments_[segment].names = name->second;
  Describe(segments_[segment], nullptr);
  return segment;
}

void Ledger::OnPoolCreate(const trace::Event& event) {
  if (!ValidDevice(event.device) || event.address == 0)
    return;
  const uint32_t space = SpaceIndex(event.process, event.device, event.time_ns);
  // The default pool belongs to whoever uses it first.
  if (event.subkind == 0)
    PoolSegment(processes_[event.process.value], space, event.address,
                owners_.Find(event.native_stack, event.stack));
}

// Blocks that are still out keep the memory of a destroyed pool, all of it, until the last one is
// freed. The driver may give the handle out again at once.
void Ledger::OnPoolDestroy(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  const uint32_t index = process.pools.Find(event.address);
  if (index == FlatMap::kNone)
    return;
  process.pools.Erase(event.address);
  const trace::DeviceId device = spaces_[segments_[index].space].device;
  prices_.NoteCall(device);
  segments_[index].closing = true;
  if (segments_[index].live_count == 0)
    ChangeHeld(segments_[index], -Signed(segments_[index].held));
}

void Ledger::OnPoolReading(const trace::Event& event) {
  if (!ValidDevice(event.device) || event.size > kLargestSize || event.value > kLargestSize)
    return;
  ProcessState& process = processes_[event.process.value];
  const uint32_t space_index = SpaceIndex(event.process, event.device, event.time_ns);
  prices_.NoteCall(event.device);
  if (event.address != 0) {
    const uint32_t segment = PoolSegment(process, space_index, event.address, kUnknownOwner);
    ChangeHeld(segments_[segment], Signed(event.size) - Signed(segments_[segment].held));
    return;
  }
  const auto set = [&](uint32_t Space::*member, Part part, uint64_t bytes) {
    if (spaces_[space_index].*member == kNoIndex) {
      if (bytes == 0)
        return;
      Counter counter;
      counter.device = event.device;
      counter.space = space_index;
      counter.owner = kCudaGraphs;
      counter.part = part;
      counter.alloc_ns = event.time_ns;
      counter.thread = event.thread;
      spaces_[space_index].*member = counters_.Add(std::move(counter));
    }
    const uint32_t counter = spaces_[space_index].*member;
    ChangeCounter(counter, Signed(bytes) - counters_[counter].bytes);
  };
  const uint64_t used = std::min(event.size, event.value);
  set(&Space::graph_used_counter, Part::kGraphUsed, used);
  set(&Space::graph_cached_counter, Part::kGraphCached, event.size - used);
}

}  // namespace vramscope::resolve
