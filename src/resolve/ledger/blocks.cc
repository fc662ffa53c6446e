// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger/blocks.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "resolve/attribute/pytree_path.h"
#include "resolve/driver/pricing.h"
#include "util/size_text.h"

namespace vramscope::resolve {
namespace {

// The most stretches kept for a block: inference engines sleep and wake thousands of times.
constexpr size_t kMostStretches = 64;

// PyTorch's allocator rounds sizes up to this.
constexpr uint64_t kTorchGranule = 512;

Purpose PurposeOf(format::XlaBlockKind kind) {
  switch (kind) {
    case format::XlaBlockKind::kTemporary:
      return Purpose::kTemporary;
    case format::XlaBlockKind::kFromHost:
      return Purpose::kInput;
    case format::XlaBlockKind::kOutput:
      return Purpose::kResult;
    case format::XlaBlockKind::kCopy:
    case format::XlaBlockKind::kUninitialized:
      break;
  }
  return Purpose::kNone;
}

}  // namespace

uint32_t Blocks::DefaultSegment(uint32_t account, bool of_program) {
  OfAccount& of = accounts_[account];
  uint32_t& index = of_program ? of.program_segment : of.default_segment;
  if (index == kNoIndex) {
    index = segments_.Add(SegmentKind::kDefault, account, 0, 0);
    Segment& segment = segments_[index];
    segment.suballocated = true;
    segment.of_program = of_program;
    segment.owner = of_program ? Owner::kApplication : Owner::kPyTorch;
    segments_.Describe(segment, {});
  }
  return index;
}

uint32_t Blocks::SegmentOf(uint32_t account, uint64_t address, uint64_t size, bool of_program) {
  const trace::ProcessId process_id = base_.accounts[account].process;
  if (base_.accounts[account].kind != tables::DeviceKind::kGpu)
    return DefaultSegment(account, of_program);
  uint32_t found = objects_.SegmentAt(process_id, address);
  if (found == util::FlatMap::kNone && of_program)
    found = objects_.SegmentOfSmall(process_id, address);
  const bool known = found != util::FlatMap::kNone &&
                     (segments_[found].account == account ||
                      segments_[found].stands_for == base_.accounts.DeviceRowOf(account));
  // A pool inside a tensor, or one whose memory is in no segment.
  if (of_program && (known ? segments_[found].suballocated && !segments_[found].of_program
                           : objects_.HasCalls(account)))
    return kNoIndex;
  if (known) {
    if (!segments_[found].suballocated)
      objects_.Suballocate(found, of_program);
    return found;
  }
  const uint32_t asleep = objects_.ReservedAt(process_id, address, account);
  if (asleep != kNoIndex && segments_[asleep].suballocated)
    return asleep;
  Progress& progress = base_.progress;
  const ProcessProgress& process = progress.processes[process_id.value];
  if (objects_.HasCalls(account) && !process.torn_down && !process.began_late &&
      progress.violations.outside_segment++ == 0)
    progress.violations.first_outside_segment =
        "block " + util::HexText(address) + " of " + std::to_string(size) + " bytes";
  return DefaultSegment(account, of_program);
}

void Blocks::On(const trace::EventContext& at, const trace::BlockAlloc& e) {
  Add(at, e);
}

void Blocks::On(const trace::EventContext& at, const trace::PoolBlock& e) {
  Add(at, e);
}

void Blocks::On(const trace::EventContext& at, const trace::XlaBlock& e) {
  Add(at, e);
}

void Blocks::On(const trace::EventContext& at, const trace::GraphTensor& e) {
  if (!base_.accounts.HasDevice(e.device) || e.address == 0 || e.size > kLargestSize)
    return;
  const uint32_t account = base_.accounts.FindOrAdd(at.process, e.device, at.time_ns);
  OfAccount& of = accounts_[account];
  const uint32_t index = of.numbers.Find(e.address);
  if (index == util::FlatMap::kNone) {
    if (e.size != 0)
      Add(at, e);
  } else if (e.size == 0 && of.blocks[index].of_graph) {
    End(account, index, true);
  }
}

void Blocks::EndOfGraphs(uint32_t account, uint64_t address, uint64_t size) {
  OfAccount& of = accounts_[account];
  auto at = of.of_graphs.upper_bound(address);
  // One that begins before the range may extend into it.
  if (at != of.of_graphs.begin())
    --at;
  while (at != of.of_graphs.end() && at->first < address + size) {
    const uint32_t index = at++->second;
    if (of.blocks[index].address + of.blocks[index].size > address)
      End(account, index, true);
  }
}

uint32_t Blocks::XlaSegmentOf(uint32_t account, uint64_t size) {
  OfAccount& of = accounts_[account];
  if (of.xla_segment != kNoIndex) {
    const Segment& last = segments_[of.xla_segment];
    if (last.by_size && !last.zombie && last.account == account && last.free_bytes() >= size)
      return of.xla_segment;
  }
  if (!objects_.HasCalls(account))
    return DefaultSegment(account, true);
  objects_.NoteXlaBlocks(account);
  const uint32_t found = objects_.XlaSegmentWithRoom(account, size);
  if (found == kNoIndex)
    return kNoIndex;
  return of.xla_segment = found;
}

template <class Given>
void Blocks::Add(const trace::EventContext& at, const Given& e) {
  constexpr bool kOfXla = std::is_same_v<Given, trace::XlaBlock>;
  constexpr bool kOfProgram = kOfXla || std::is_same_v<Given, trace::PoolBlock>;
  constexpr bool kOfGraph = std::is_same_v<Given, trace::GraphTensor>;
  if (!base_.accounts.HasDevice(e.device) || e.address == 0 || e.size > kLargestSize)
    return;
  Progress& progress = base_.progress;
  const uint32_t account = base_.accounts.FindOrAdd(at.process, e.device, at.time_ns);
  OfAccount& of = accounts_[account];
  uint64_t size = e.size;
  if (kOfGraph && base_.accounts[account].kind == tables::DeviceKind::kGpu)
    size = (size + kTorchGranule - 1) / kTorchGranule * kTorchGranule;
  if (!of.of_graphs.empty()) [[unlikely]]
    EndOfGraphs(account, e.address, size);
  if (const uint32_t old = of.numbers.Find(e.address); old != util::FlatMap::kNone) {
    // Its allocation is recorded after the snapshot that shows it.
    if (of.blocks[old].origin.purpose != Purpose::kPrior) {
      ++progress.double_allocs.count;
      progress.double_allocs.bytes += of.blocks[old].size;
    }
    End(account, old, true);
  }
  const uint32_t segment_index =
      kOfXla ? XlaSegmentOf(account, size) : SegmentOf(account, e.address, size, kOfProgram);
  if (segment_index == kNoIndex) {
    ++progress.unknown_names.count;
    progress.unknown_names.bytes += size;
    of.unplaced.insert(e.address);
    return;
  }
  if (!kOfProgram)
    objects_.NoteBlocks(account);
  const uint32_t index = of.blocks.Add();
  of.numbers.FindOrAdd(e.address) = index;
  Segment& segment = segments_[segment_index];
  Block& block = of.blocks[index];
  block.address = e.address;
  block.size = size;
  block.alloc_ns = at.time_ns;
  block.thread = at.thread;
  block.segment = segment_index;
  block.owner = segment.owner;
  if constexpr (std::is_same_v<Given, trace::Prior>) {
    block.origin.purpose = Purpose::kPrior;  // its stack is unknown
    block.origin.module_epoch = progress.processes[at.process.value].modules_gone;
  } else {
    block.stack = e.stack;
    if constexpr (!kOfGraph)
      block.native = e.native;
    uint64_t sequence = 0;
    if constexpr (!kOfProgram)
      sequence = e.sequence;
    rows_.FillOrigin(at, e.stack, block.native, sequence, &block.origin);
  }
  if constexpr (kOfGraph) {
    block.of_graph = true;
    of.of_graphs[block.address] = index;
  }
  if constexpr (kOfXla) {
    block.owner = Owner::kXla;
    block.origin.purpose = PurposeOf(e.kind);
  }
  if (std::exchange(segment.unplaced, false) && block.origin.forward.value != 0)
    objects_.Place(segment_index, block.origin.forward);
  if (block.origin.phase == Phase::kForward)
    base_.iterations.OnForward(at.process, at.time_ns);
  if constexpr (kOfProgram) {
    if (e.name.value != 0 || e.requested != 0)
      block.origin.names = base_.names.Add(0, {format::NameKind::kTag, e.name, {}, 0, e.requested});
  }
  if constexpr (kOfXla)
    block.origin.names = WithPath(block.origin.names, e.path);
  if (block.origin.names == 0)
    block.origin.names = segment.region;
  Move(of, segment, block, 1);
  if (segment.kind == SegmentKind::kReservation && !segment.by_size)
    SetUnbacked(account, index);
  if (segment.kind == SegmentKind::kAllocation && segment.live_bytes > segment.held &&
      !segment.zombie && progress.violations.overfull_segments++ == 0)
    progress.violations.first_overfull = "segment at " + util::HexText(segment.begin);
}

void Blocks::End(uint32_t account, uint32_t index, bool freed) {
  OfAccount& of = accounts_[account];
  of.numbers.Erase(of.blocks[index].address);
  EndErased(account, index, freed);
}

void Blocks::EndErased(uint32_t account, uint32_t index, bool freed) {
  OfAccount& of = accounts_[account];
  Block& block = of.blocks[index];
  EndRow(account, index, freed);
  if (block.of_graph) [[unlikely]]
    of.of_graphs.erase(block.address);
  const uint32_t segment_index = block.segment;
  Segment& segment = segments_[segment_index];
  if (block.has_stretches) [[unlikely]] {
    const uint64_t unbacked_bytes = of.stretches[index].back().unbacked_bytes;
    segment.unbacked_bytes -= unbacked_bytes;
    base_.phases.OnUnbacked(base_.accounts[account].process, -Signed(unbacked_bytes),
                            base_.progress.now_ns);
    segments_.MoveBlock(segment, Signed(unbacked_bytes), 0);
    of.stretches.erase(index);
  }
  Move(of, segment, block, -1);
  of.blocks.Remove(index);
  if (segment.zombie && segment.live_count == 0)
    segments_.Forget(segment_index);
}

// Ends the block's current row.
void Blocks::EndRow(uint32_t account, uint32_t index, bool freed) {
  OfAccount& of = accounts_[account];
  Block& block = of.blocks[index];
  if (!block.has_stretches) [[likely]]
    return rows_.End(&block, account, freed);
  rows_.End(&block, account, freed, of.stretches[index]);
}

void Blocks::SetUnbacked(uint32_t account, uint32_t index) {
  OfAccount& of = accounts_[account];
  Block& block = of.blocks[index];
  Segment& segment = segments_[block.segment];
  const auto unbacked = [&](uint64_t begin, uint64_t size) {
    return size - segments_.BackedBytes(segment, begin, size);
  };
  Stretch now{base_.progress.now_ns, unbacked(block.address, block.size)};
  if (now.unbacked_bytes == 0 && !block.has_stretches)
    return;
  now.unbacked_tail = unbacked(block.address + block.size - 1, 1) != 0;
  Stretches& stretches = of.stretches[index];
  if (!std::exchange(block.has_stretches, true))
    stretches.push_back({block.alloc_ns});
  const uint64_t before = stretches.back().unbacked_bytes;
  if (before == now.unbacked_bytes && stretches.back().unbacked_tail == now.unbacked_tail)
    return;
  // Later names apply to a block's whole life; after too many stretches, to the rest of it.
  if (stretches.size() == kMostStretches) {
    stretches.push_back(now);
    EndRow(account, index, false);
    stretches.clear();
  } else if (stretches.back().begin_ns == now.begin_ns) {
    stretches.pop_back();
  }
  stretches.push_back(now);
  segment.unbacked_bytes += now.unbacked_bytes - before;
  base_.phases.OnUnbacked(base_.accounts[account].process,
                          Signed(now.unbacked_bytes) - Signed(before), now.begin_ns);
  segments_.MoveBlock(segment, Signed(before) - Signed(now.unbacked_bytes), 0);
}

void Blocks::FollowMemory() {
  for (const Segments::Rebacked& change : segments_.TakeRebacked()) {
    const trace::ProcessId process = base_.accounts[segments_[change.segment].account].process;
    // Host memory may replace device memory; its blocks count for the device.
    for (uint32_t account = 0; account < base_.accounts.count(); ++account) {
      if (base_.accounts[account].process == process &&
          base_.accounts[account].kind == tables::DeviceKind::kGpu)
        FollowMemory(account, change);
    }
  }
}

void Blocks::FollowMemory(uint32_t account, const Segments::Rebacked& change) {
  OfAccount& of = accounts_[account];
  if (!std::exchange(of.is_in_order, true)) {
    of.in_order.clear();
    of.blocks.ForEach([&](uint32_t index, const Block& block) {
      of.in_order.emplace_back(block.address, index);
    });
    std::sort(of.in_order.begin(), of.in_order.end());
  }
  auto at = std::upper_bound(of.in_order.begin(), of.in_order.end(),
                             std::pair(change.begin, uint32_t{0}));
  // A block that begins before the range may extend into it.
  if (at != of.in_order.begin())
    --at;
  for (; at != of.in_order.end() && at->first < change.end; ++at) {
    if (of.blocks[at->second].segment == change.segment)
      SetUnbacked(account, at->second);
  }
}

void Blocks::On(const trace::EventContext& at, const trace::BlockFree& e) {
  if (e.address == 0)
    return;
  const bool has_device = base_.accounts.HasDevice(e.device);
  const uint32_t account =
      has_device ? base_.accounts.FindOrAdd(at.process, e.device, at.time_ns) : kNoIndex;
  const uint32_t index =
      has_device ? accounts_[account].numbers.Erase(e.address) : util::FlatMap::kNone;
  if (index == util::FlatMap::kNone) [[unlikely]] {
    // The device of unmapped memory cannot be queried. A pool of the program then reports the
    // current device, or none without a current context.
    const uint32_t found = AccountOf(at.process, e.address);
    if (found == kNoIndex || base_.accounts[found].kind != tables::DeviceKind::kGpu)
      return has_device ? OnUnknownFree(at, e, account) : void();
    base_.progress.frees.Note(at.process, e.address);
    return End(found, accounts_[found].numbers.Find(e.address), true);
  }
  base_.progress.frees.Note(at.process, e.address);
  EndErased(account, index, true);
}

void Blocks::OnUnknownFree(const trace::EventContext& at,
                           const trace::BlockFree& e,
                           uint32_t account) {
  Progress& progress = base_.progress;
  if (accounts_[account].unplaced.erase(e.address) != 0)
    return;
  if (progress.frees.Has(at.process, e.address)) {
    if (progress.violations.freed_twice++ == 0)
      progress.violations.first_freed_twice = "block " + util::HexText(e.address);
    return;
  }
  const bool is_forked =
      base_.accounts.HasProcess(at.process) && base_.trace.processes()[at.process.value].is_forked;
  // A forked child frees its copy; the parent's memory stays.
  if (is_forked && IsOfAncestor(at.process, e.address))
    return;
  trace::Loss& loss = is_forked ? progress.inherited_frees : progress.unknown_frees;
  ++loss.count;
  if (e.size > kLargestSize)
    return;
  loss.bytes += e.size;
  progress.frees.Note(at.process, e.address);
  if (is_forked)
    return;
  // In a known segment its bytes already count as free.
  if (!objects_.HasCalls(account))
    base_.counters.StepAndMove(base_.counters.Before(account), -Signed(e.size));
}

bool Blocks::IsOfAncestor(trace::ProcessId process, uint64_t address) const {
  constexpr int kGenerations = 8;  // a damaged file can have a cycle
  for (int i = 0; i < kGenerations; ++i) {
    process = ancestors_.ParentOf(process);
    if (!base_.accounts.HasProcess(process))
      return false;
    if (Has(process, address))
      return true;
  }
  return false;
}

void Blocks::On(const trace::EventContext& at, const trace::State& e) {
  if (e.state == format::RecordingState::kRecording)
    base_.progress.processes[at.process.value].resumed = true;
  // A free without a recorded allocation looks like a second free.
  base_.progress.frees.Forget();
  if (e.cpu_live == 0 || e.cpu_live > Signed(kLargestSize) || e.cpu_live < -Signed(kLargestSize) ||
      !base_.accounts.HasDevice(base_.accounts.cpu()))
    return;
  const uint32_t account = base_.accounts.FindOrAdd(at.process, base_.accounts.cpu(), at.time_ns);
  base_.counters.StepAndMove(base_.counters.Before(account), e.cpu_live);
}

void Blocks::On(const trace::EventContext& at, const trace::AllocatorTotals& e) {
  if (!base_.accounts.HasDevice(e.device) || e.allocated > kLargestSize ||
      e.reserved > kLargestSize)
    return;
  const uint32_t account = base_.accounts.FindOrAdd(at.process, e.device, at.time_ns);
  // In a process that was already running, driver events may be incomplete.
  const bool some_known = objects_.HasCalls(account);
  const bool is_late = base_.progress.processes[at.process.value].began_late;
  if (some_known && !is_late)
    return;
  OfAccount& of = accounts_[account];
  if (!of.totals_seen && !some_known) {
    of.totals_seen = true;
    // For a process that was already running, NVML's figure is more exact.
    if (!is_late || !base_.prices.HasFigure(at.process, e.device))
      base_.counters.RaiseBefore(
          account, Signed(e.allocated) - Signed(of.bytes) - base_.counters.BytesBefore(account));
  }
  Segment& segment = segments_[DefaultSegment(account, false)];
  const int64_t known = some_known ? Signed(segments_.PyTorchBytes(account)) : 0;
  const int64_t held =
      std::max<int64_t>(0, Signed(e.reserved) - base_.counters.MissingBefore(account) - known);
  if (held == Signed(segment.held))
    return;
  segments_.CountHeld(segment);
  segments_.SetHeld(segment, static_cast<uint64_t>(held));
}

void Blocks::On(const trace::EventContext& at, const trace::Prior& e) {
  if (!base_.accounts.HasDevice(e.device) || e.address == 0 || e.size == 0 || e.size > kLargestSize)
    return;
  if (e.kind == format::PriorKind::kSegment) {
    const uint32_t segment = objects_.AddPriorSegment(at, e);
    if (segment != kNoIndex)
      MoveInto(segment);
  } else if (e.kind == format::PriorKind::kAllocation) {
    objects_.AddPriorAllocation(at, e);
  } else if (e.kind == format::PriorKind::kBlock) {
    // A block allocated during the snapshot is already known.
    const uint32_t account = base_.accounts.FindOrAdd(at.process, e.device, at.time_ns);
    if (accounts_[account].numbers.Find(e.address) == util::FlatMap::kNone)
      Add(at, e);
  }
}

// Blocks allocated in it since recording began are with the blocks of no known segment.
void Blocks::MoveInto(uint32_t index) {
  Segment& segment = segments_[index];
  OfAccount& of = accounts_[segment.account];
  if (of.default_segment == kNoIndex)
    return;
  Segment& nowhere = segments_[of.default_segment];
  if (nowhere.live_count == 0)
    return;
  of.blocks.ForEach([&](uint32_t, Block& block) {
    if (block.segment != of.default_segment || block.address < segment.begin ||
        block.address >= segment.end)
      return;
    segments_.Change(nowhere, 0, -Signed(block.size), -1);
    segments_.Change(segment, 0, Signed(block.size), 1);
    block.segment = index;
  });
}

bool Blocks::Name(const trace::EventContext& at,
                  trace::DeviceId device,
                  uint64_t address,
                  const MemoryName& name) {
  const uint32_t account = base_.accounts.Find(at.process, device);
  if (account == kNoIndex)
    return false;
  OfAccount& of = accounts_[account];
  const uint32_t index = of.numbers.Find(address);
  if (index == util::FlatMap::kNone)
    return false;
  Block& block = of.blocks[index];
  // A sparse gradient's indices: its own if the backward made them; otherwise they are part of the
  // batch.
  if (name.kind == format::NameKind::kGradient && name.detail.value != 0 &&
      block.origin.phase != Phase::kBackward)
    return true;
  base_.names.NoteSize(at.process, name);
  base_.phases.OnName(at.process, name.kind, block.origin, block.size);
  const uint32_t set = base_.names.Add(block.origin.names, name);
  // The memory was reused.
  if (set != block.origin.names && base_.names.TakesTurn(block.origin.names, name)) {
    EndRow(account, index, true);
    block.alloc_ns = at.time_ns;
    if (block.has_stretches) {
      Stretches& stretches = of.stretches[index];
      stretches = {stretches.back()};
      stretches.back().begin_ns = at.time_ns;
    }
  }
  block.origin.names = set;
  base_.names.NoteParts(at.process, set);
  return true;
}

uint32_t Blocks::WithPath(uint32_t names, tables::StringId path) {
  if (path.value == 0)
    return names;
  const NameSet& set = base_.names.set(names);
  const bool is_known = CategoryOfName(base_.names.name(set.first).kind).has_value();
  MemoryName name{KindOfPytreePath(base_.trace.string(path)), path, {}, 0, set.requested};
  return is_known ? names : base_.names.Add(names, name);
}

void Blocks::NamePath(const trace::EventContext& at,
                      trace::DeviceId device,
                      uint64_t address,
                      tables::StringId path) {
  const uint32_t account = base_.accounts.HasDevice(device)
                               ? base_.accounts.Find(at.process, device)
                               : AccountOf(at.process, address);
  if (account == kNoIndex)
    return;
  OfAccount& of = accounts_[account];
  const uint32_t index = of.numbers.Find(address);
  if (index != util::FlatMap::kNone)
    of.blocks[index].origin.names = WithPath(of.blocks[index].origin.names, path);
}

uint32_t Blocks::AccountOf(trace::ProcessId process, uint64_t address) const {
  for (size_t i = 0; i < base_.trace.devices().size(); ++i) {
    const uint32_t account = base_.accounts.Find(process, trace::DeviceId{static_cast<int16_t>(i)});
    const OfAccount* const of = account == kNoIndex ? nullptr : accounts_.Find(account);
    if (of != nullptr && of->numbers.Find(address) != util::FlatMap::kNone)
      return account;
  }
  return kNoIndex;
}

void Blocks::End(uint32_t account) {
  accounts_[account].blocks.ForEach(
      [&](uint32_t block, const Block&) { End(account, block, false); });
}

void Blocks::Finish() {
  for (uint32_t account = 0; account < base_.accounts.count(); ++account) {
    accounts_[account].blocks.ForEach(
        [&](uint32_t block, const Block&) { EndRow(account, block, false); });
  }
}

}  // namespace vramscope::resolve
