// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger/pools.h"

#include <algorithm>
#include <utility>

#include "resolve/driver/pricing.h"

namespace vramscope::resolve {

uint32_t Pools::SegmentOf(trace::ProcessId process, uint32_t account, uint64_t pool, Owner owner) {
  OfProcess& known = processes_[process.value];
  uint32_t& index = known.segments.FindOrAdd(pool);
  if (index != util::FlatMap::kNone)
    return index;
  index = segments_.Add(SegmentKind::kPool, account, 0, 0);
  Segment& segment = segments_[index];
  segment.owner = owner;
  segment.suballocated = true;
  segments_.CountHeld(segment);
  if (const auto name = known.names.find(pool); name != known.names.end())
    segment.names = name->second;
  segments_.Describe(segment, {});
  return index;
}

void Pools::On(const trace::EventContext& at, const trace::PoolCreate& e) {
  if (!base_.accounts.HasDevice(e.device) || e.pool == 0)
    return;
  const uint32_t account = base_.accounts.FindOrAdd(at.process, e.device, at.time_ns);
  // The first user of the default pool becomes its owner.
  if (e.kind == format::PoolKind::kCreated)
    SegmentOf(at.process, account, e.pool, base_.owners.Find(e.native, e.stack));
}

// A destroyed pool keeps all its memory until its last block is freed. The driver may reuse the
// handle at once.
void Pools::On(const trace::EventContext& at, const trace::PoolDestroy& e) {
  util::FlatMap& known = processes_[at.process.value].segments;
  const uint32_t index = known.Find(e.pool);
  if (index == util::FlatMap::kNone)
    return;
  known.Erase(e.pool);
  Segment& segment = segments_[index];
  base_.prices.NoteCall(base_.accounts[segment.account].device);
  segment.closing = true;
  if (segment.live_count == 0)
    segments_.SetHeld(segment, 0);
}

void Pools::On(const trace::EventContext& at, const trace::PoolReading& e) {
  if (!base_.accounts.HasDevice(e.device) || e.reserved > kLargestSize || e.used > kLargestSize)
    return;
  const uint32_t account = base_.accounts.FindOrAdd(at.process, e.device, at.time_ns);
  base_.prices.NoteCall(e.device);
  if (e.pool != 0) {
    const uint32_t segment = SegmentOf(at.process, account, e.pool, Owner::kUnknown);
    return segments_.SetHeld(segments_[segment], e.reserved);
  }
  const uint64_t used = std::min(e.reserved, e.used);
  SetGraphs(at, account, Part::kGraphUsed, used);
  SetGraphs(at, account, Part::kGraphCached, e.reserved - used);
}

void Pools::SetGraphs(const trace::EventContext& at, uint32_t account, Part part, uint64_t bytes) {
  Graphs& graphs = graphs_[account];
  uint32_t& number = part == Part::kGraphUsed ? graphs.used : graphs.cached;
  if (number == kNoIndex) {
    if (bytes == 0)
      return;
    Counter counter = base_.counters.CounterOf(account);
    counter.owner = Owner::kCudaGraphs;
    counter.part = part;
    counter.alloc_ns = at.time_ns;
    counter.thread = at.thread;
    number = base_.counters.Add(std::move(counter));
  }
  base_.counters.StepAndMove(number, static_cast<int64_t>(bytes) - base_.counters[number].bytes);
}

void Pools::Name(trace::ProcessId process, uint64_t pool, const MemoryName& name) {
  OfProcess& known = processes_[process.value];
  uint32_t& names = known.names[pool];
  names = base_.names.Add(names, name);
  if (const uint32_t index = known.segments.Find(pool); index != util::FlatMap::kNone) {
    segments_[index].names = names;
    segments_.Describe(segments_[index], {});
  }
}

void Pools::Allocate(uint32_t segment, uint64_t bytes) {
  segments_.Change(segments_[segment], 0, static_cast<int64_t>(bytes), 1);
}

void Pools::Free(uint32_t index, uint64_t bytes) {
  Segment& segment = segments_[index];
  segments_.Change(segment, 0, -static_cast<int64_t>(bytes), -1);
  if (segment.closing && segment.live_count == 0)
    segments_.SetHeld(segment, 0);
}

void Pools::End(uint32_t account) {
  for (const uint32_t counter : {graphs_[account].used, graphs_[account].cached}) {
    if (counter != kNoIndex)
      base_.counters.StepAndMove(counter, -base_.counters[counter].bytes);
  }
}

}  // namespace vramscope::resolve
