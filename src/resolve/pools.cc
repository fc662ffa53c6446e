// SPDX-License-Identifier: Apache-2.0
#include "resolve/pools.h"

#include <algorithm>
#include <utility>

#include "resolve/pricing.h"

namespace vramscope::resolve {

uint32_t Pools::SegmentOf(trace::ProcessId process,
                          uint32_t account,
                          uint64_t pool,
                          OwnerId owner) {
  OfProcess& known = processes_[process.value];
  uint32_t& index = known.segments.FindOrAdd(pool);
  if (index != FlatMap::kNone)
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

void Pools::OnCreate(const trace::Event& event) {
  if (!base_.accounts.HasDevice(event.device) || event.address == 0)
    return;
  const uint32_t account = base_.accounts.FindOrAdd(event.process, event.device, event.time_ns);
  // The default pool belongs to whoever uses it first.
  if (event.subkind == 0)
    SegmentOf(event.process, account, event.address,
              base_.owners.Find(event.native_stack, event.stack));
}

// Blocks that are still out keep the memory of a destroyed pool, all of it, until the last one is
// freed. The driver may give the handle out again at once.
void Pools::OnDestroy(const trace::Event& event) {
  FlatMap& known = processes_[event.process.value].segments;
  const uint32_t index = known.Find(event.address);
  if (index == FlatMap::kNone)
    return;
  known.Erase(event.address);
  Segment& segment = segments_[index];
  base_.prices.NoteCall(base_.accounts[segment.account].device);
  segment.closing = true;
  if (segment.live_count == 0)
    segments_.SetHeld(segment, 0);
}

void Pools::OnReading(const trace::Event& event) {
  if (!base_.accounts.HasDevice(event.device) || event.size > kLargestSize ||
      event.value > kLargestSize)
    return;
  const uint32_t account = base_.accounts.FindOrAdd(event.process, event.device, event.time_ns);
  base_.prices.NoteCall(event.device);
  if (event.address != 0) {
    const uint32_t segment = SegmentOf(event.process, account, event.address, kUnknownOwner);
    return segments_.SetHeld(segments_[segment], event.size);
  }
  const uint64_t used = std::min(event.size, event.value);
  SetGraphs(event, account, Part::kGraphUsed, used);
  SetGraphs(event, account, Part::kGraphCached, event.size - used);
}

void Pools::SetGraphs(const trace::Event& event, uint32_t account, Part part, uint64_t bytes) {
  Graphs& graphs = graphs_[account];
  uint32_t& number = part == Part::kGraphUsed ? graphs.used : graphs.cached;
  if (number == kNoIndex) {
    if (bytes == 0)
      return;
    Counter counter = base_.counters.CounterOf(account);
    counter.owner = kCudaGraphs;
    counter.part = part;
    counter.alloc_ns = event.time_ns;
    counter.thread = event.thread;
    number = base_.counters.Add(std::move(counter));
  }
  base_.counters.StepAndMove(number, static_cast<int64_t>(bytes) - base_.counters[number].bytes);
}

void Pools::OnName(const trace::Event& event) {
  OfProcess& known = processes_[event.process.value];
  uint32_t& names = known.names[event.address];
  names = base_.names.Add(names, {format::NameKind::kPool, event.name, event.api, event.value, 0});
  if (const uint32_t index = known.segments.Find(event.address); index != FlatMap::kNone) {
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
