// SPDX-License-Identifier: Apache-2.0
// Blocks of caching allocators and CPU tensors: the events that come by the ten million.
#include <algorithm>

#include "resolve/ledger.h"
#include "resolve/pricing.h"

namespace vramscope::resolve {
namespace {

int64_t Signed(uint64_t bytes) {
  return static_cast<int64_t>(bytes);
}

size_t FreedSlot(uint64_t address, size_t slots) {
  return (address * 0x9e3779b97f4a7c15u >> 40) & (slots - 1);
}

std::string Hex(uint64_t value) {
  static const char kDigits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + text;
}

}  // namespace

// A free of an address that was freed a moment ago and not given out since is a second free. Only
// recent addresses are remembered: what is found is certain, what is older goes as unknown.
void Ledger::NoteFree(uint64_t address) {
  recently_freed_[FreedSlot(address, recently_freed_.size())] = address;
}

bool Ledger::FreedBefore(uint64_t address) const {
  return recently_freed_[FreedSlot(address, recently_freed_.size())] == address;
}

void Ledger::MoveBlock(Space& space, Segment& segment, const Block& block, int64_t count) {
  const int64_t bytes = count * Signed(block.size);
  const int64_t free_before = Signed(segment.free_bytes());
  segment.live_bytes += static_cast<uint64_t>(bytes);
  segment.live_count += static_cast<uint64_t>(count);
  space.block_bytes += static_cast<uint64_t>(bytes);
  Move(space, bytes + Signed(segment.free_bytes()) - free_before);
}

// Where blocks of the program's own pools stand whose memory was not recorded.
uint32_t Ledger::ProgramSegment(uint32_t space_index) {
  if (spaces_[space_index].program_segment == kNoIndex) {
    const uint32_t segment = NewSegment(SegmentKind::kDefault, space_index, 0, 0);
    segments_[segment].suballocated = true;
    segments_[segment].owner = kApplication;
    segments_[segment].of_program = true;
    Describe(segments_[segment], nullptr);
    spaces_[space_index].program_segment = segment;
  }
  return spaces_[space_index].program_segment;
}

// The first block shows that an allocator cuts this segment up: its bytes are cached or fragments
// from now on, not one allocation of the program.
void Ledger::Suballocate(Segment& segment, Space& space, bool of_program) {
  ProcessState& process = processes_[space.process.value];
  const auto back = [&](Holding& holding) {
    EndRow(&holding, false);
    holding.backing = true;
    return &holding;
  };
  const Holding* backing = nullptr;
  if (segment.kind == SegmentKind::kAllocation) {
    Holding& holding = process.holdings[segment.holding];
    Move(space, -Signed(segment.held));
    backing = back(holding);
  } else {
    process.holdings.ForEach([&](uint32_t index, const Holding& mapping) {
      if (mapping.kind != HoldingKind::kMapping || &segments_[mapping.segment] != &segment)
        return;
      Holding& handle = process.holdings[mapping.handle];
      Move(space, -Signed(mapping.accounted));
      EndRow(&handle, false);
      handle.backing_bytes += mapping.accounted;
      backing = back(process.holdings[index]);
    });
  }
  segment.of_program = of_program;
  if (!of_program)
    segment.owner = kPyTorch;
  segment.suballocated = true;
  Describe(segment, backing);
  Move(space, Signed(segment.held));
}

void Ledger::OnBlockAlloc(const trace::Event& event) {
  if (!ValidDevice(event.device) || event.address == 0 || event.size > kLargestSize)
    return;
  const uint32_t space_index = SpaceIndex(event.process, event.device, event.time_ns);
  if (const uint32_t old = spaces_[space_index].block_index.Find(event.address);
      old != FlatMap::kNone) {
    const Block& block = spaces_[space_index].blocks[old];
    // Its allocation comes to light after the snapshot that shows it.
    if (block.origin.purpose != Purpose::kPrior) {
      ++double_allocs_.count;
      double_allocs_.bytes += block.size;
    }
    EndBlock(space_index, old, true);
  }
  Space& space = spaces_[space_index];
  const bool of_program = (event.flags & trace::kPoolOfProgram) != 0;
  uint32_t segment_index = of_program ? ProgramSegment(space_index) : space.default_segment;
  if (space.kind == trace::DeviceKind::kGpu) {
    const ProcessState& process = processes_[event.process.value];
    const uint32_t found = process.pages.Find(event.address);
    const bool known = found != FlatMap::kNone && segments_[found].space == space_index;
    // A pool inside of a tensor, or one whose memory stands in no segment: its blocks' bytes stand
    // in the ledger already.
    if (of_program && (known ? segments_[found].suballocated && !segments_[found].of_program
                             : space.driver_events)) {
      ++unknown_names_.count;
      unknown_names_.bytes += event.size;
      return;
    }
    if (known) {
      segment_index = found;
      if (!segments_[found].suballocated)
        Suballocate(segments_[found], space, of_program);
    } else if (space.driver_events && !process.torn_down && !process.began_late) {
      if (violations_.outside_segment++ == 0)
        violations_.first_outside_segment =
            "block " + Hex(event.address) + " of " + std::to_string(event.size) + " bytes";
    }
  }
  space.blocks_seen = space.blocks_seen || !of_program;
  const uint32_t index = space.blocks.Add();
  space.block_index.FindOrAdd(event.address) = index;
  Block& block = space.blocks[index];
  block.address = event.address;
  block.size = event.size;
  block.alloc_ns = event.time_ns;
  block.life = next_life_++;
  block.stack = event.stack;
  block.native = event.native_stack;
  block.thread = event.thread;
  block.segment = segment_index;
  block.owner = segments_[segment_index].owner;
  if (event.kind == trace::EventKind::kPrior)
    block.origin.purpose = Purpose::kPrior;  // nothing else is known of its allocation
  else
    phases_.OnAllocated(event, &block.origin);
  block.origin.module_epoch = processes_[event.process.value].modules_gone;
  if (block.origin.phase == Phase::kForward)
    iterations_.OnForward(event.process, event.time_ns);
  if (of_program && (event.name.value != 0 || event.value != 0)) {
    block.origin.names = names_.Add(0, {format::NameKind::kTag, event.name, {}, 0, event.value});
  }
  Segment& segment = segments_[segment_index];
  MoveBlock(space, segment, block, 1);
  if (segment.kind == SegmentKind::kAllocation && segment.live_bytes > segment.held &&
      !segment.zombie) {
    if (violations_.overfull_segments++ == 0)
      violations_.first_overfull = "segment at " + Hex(segment.begin);
  }
}

void Ledger::EndBlock(uint32_t space_index, uint32_t index, bool freed) {
  Space& space = spaces_[space_index];
  Block& block = space.blocks[index];
  EndRow(&block, space_index, freed);
  Segment& segment = segments_[block.segment];
  const uint32_t segment_index = block.segment;
  MoveBlock(space, segment, block, -1);
  space.block_index.Erase(block.address);
  space.blocks.Remove(index);
  if (segment.zombie && segment.live_count == 0)
    segments_.Remove(segment_index);
}

void Ledger::OnBlockFree(const trace::Event& event) {
  if (!ValidDevice(event.device) || event.address == 0)
    return;
  const uint32_t space_index = SpaceIndex(event.process, event.device, event.time_ns);
  const uint32_t index = spaces_[space_index].block_index.Find(event.address);
  if (index == FlatMap::kNone)
    return UnknownBlockFree(space_index, event);
  NoteFree(event.address);
  EndBlock(space_index, index, true);
}

void Ledger::UnknownBlockFree(uint32_t space_index, const trace::Event& event) {
  if (FreedBefore(event.address)) {
    if (violations_.freed_twice++ == 0)
      violations_.first_freed_twice = "block " + Hex(event.address);
    return;
  }
  ++unknown_frees_.count;
  if (event.size > kLargestSize)
    return;
  unknown_frees_.bytes += event.size;
  NoteFree(event.address);
  // Within a known segment its bytes stand as free already.
  if (spaces_[space_index].driver_events)
    return;
  ChangeCounter(BeforeCounter(space_index), -Signed(event.size));
}

// `before recording` starts at what is known and sinks with each unknown free. Where it would sink
// below zero, more must have been there at the start: Finish() lifts it by that much throughout.
uint32_t Ledger::BeforeCounter(uint32_t space_index) {
  if (spaces_[space_index].before_counter == kNoIndex) {
    Counter counter;
    counter.device = spaces_[space_index].device;
    counter.space = space_index;
    counter.owner = kNoOwner;
    counter.part = Part::kBeforeRecording;
    counter.alloc_ns = spaces_[space_index].first_ns;
    spaces_[space_index].before_counter = counters_.Add(std::move(counter));
  }
  return spaces_[space_index].before_counter;
}

void Ledger::OnState(const trace::Event& event) {
  // What happened while it did not record cannot be told from a second free.
  std::fill(recently_freed_.begin(), recently_freed_.end(), 0);
  const auto live = static_cast<int64_t>(event.size);
  if (live == 0 || live > Signed(kLargestSize) || live < -Signed(kLargestSize))
    return;
  if (ValidDevice(cpu_device_)) {
    const uint32_t space = SpaceIndex(event.process, cpu_device_, event.time_ns);
    ChangeCounter(BeforeCounter(space), live);
  }
}

// Where the driver's events are not there, the allocator's own totals say what it holds; the first
// of them also says what was live before the recording began.
void Ledger::OnAllocatorTotals(const trace::Event& event) {
  if (!ValidDevice(event.device) || event.size > kLargestSize || event.value > kLargestSize)
    return;
  const uint32_t space_index = SpaceIndex(event.process, event.device, event.time_ns);
  // In a process that was under way the driver's events may not be all.
  const bool some_known = spaces_[space_index].driver_events;
  if (some_known && !processes_[event.process.value].began_late)
    return;
  const bool is_late = processes_[event.process.value].began_late;
  Space& space = spaces_[space_index];
  if (!space.totals_seen && !some_known) {
    space.totals_seen = true;
    const int64_t before =
        space.before_counter == kNoIndex ? 0 : counters_[space.before_counter].bytes;
    // NVML's figure says what a process under way had, and more exactly.
    if (!is_late || !prices_.HasFigure(event.process, event.device))
      space.before_offset =
          std::max(space.before_offset, Signed(event.size) - Signed(space.block_bytes) - before);
  }
  Segment& segment = segments_[space.default_segment];
  const int64_t known = some_known ? Signed(SegmentBytes(space_index)) : 0;
  const int64_t held = Signed(event.value) - space.before_offset - known;
  const int64_t change_bytes = std::max<int64_t>(held, 0) - Signed(segment.held);
  if (change_bytes == 0)
    return;
  if (segment.held_counter == kNoIndex) {
    Counter counter;
    counter.device = space.device;
    counter.space = space_index;
    counter.segment = segment.row;
    segment.held_counter = counters_.Add(std::move(counter));
  }
  ChangeHeld(segment, change_bytes);
}

}  // namespace vramscope::resolve
