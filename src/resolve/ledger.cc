// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger.h"

#include <algorithm>

#include "resolve/parts.h"

namespace vramscope::resolve {
namespace {

// Times of a damaged trace can be anything; sums and differences of these cannot overflow.
constexpr int64_t kLatestNs = int64_t{1} << 61;
// The end of a process is seen within this time; where nobody saw it, it was so long after its last
// event at most.
constexpr int64_t kNoticedAfterNs = 1'000'000'000;
constexpr int64_t kEndsWithinNs = 100'000'000;

}  // namespace

Change::Change(Ledger& ledger, trace::DeviceId device, int64_t begin_ns, int64_t end_ns)
    : ledger_(ledger), device_(device), begin_ns_(begin_ns), end_ns_(end_ns) {
  const DeviceState& state = ledger_.devices_[static_cast<size_t>(device_.value)];
  total_before_ = state.total;
  away_before_ = state.away;
}

Change::~Change() {
  DeviceState& state = ledger_.devices_[static_cast<size_t>(device_.value)];
  const int64_t moved = state.total - total_before_;
  // A call that waits until the memory is back moves it then.
  if (moved == 0 && state.away != away_before_)
    ledger_.NoteMovement(state, begin_ns_, end_ns_, state.away - away_before_);
  if (moved != 0) {
    ledger_.NoteVersion(state);
    ledger_.NoteMovement(state, begin_ns_, end_ns_, moved);
  }
}

Ledger::Ledger(const trace::Trace& trace, tables::AllocationSink& sink)
    : trace_(trace),
      rows_(sink),
      owners_(trace),
      phases_(trace),
      modules_(trace),
      iterations_(trace),
      devices_(trace.devices().size()),
      processes_(trace.processes().size()),
      space_index_(devices_.size() * processes_.size(), kNoIndex),
      recently_freed_(size_t{1} << 14) {
  first_ns_ = trace.session().start_ns;
  unknown_frees_.name = format::LossName(static_cast<uint64_t>(format::Loss::kUnknownFree));
  double_allocs_.name = format::LossName(static_cast<uint64_t>(format::Loss::kDoubleAlloc));
  unknown_names_.name = format::LossName(static_cast<uint64_t>(format::Loss::kNamesWithoutMemory));
  for (size_t i = 0; i < devices_.size(); ++i) {
    devices_[i].id = trace::DeviceId{static_cast<int16_t>(i)};
    devices_[i].kind = trace.devices()[i].kind;
    if (devices_[i].kind == trace::DeviceKind::kHost)
      host_device_ = devices_[i].id;
  }
}

uint32_t Ledger::SpaceIndex(trace::ProcessId process, trace::DeviceId device, int64_t time_ns) {
  const size_t at = process.value * devices_.size() + static_cast<size_t>(device.value);
  if (space_index_[at] != kNoIndex)
    return space_index_[at];
  const auto index = static_cast<uint32_t>(spaces_.size());
  space_index_[at] = index;
  spaces_.emplace_back();
  Space& space = spaces_.back();
  space.process = process;
  space.device = device;
  space.first_ns = time_ns;
  DeviceState& state = DeviceOf(space);
  // From here on the device's figure is this process's doing too.
  ++state.active_processes;
  state.baseline_frozen = true;
  const uint32_t segment = NewSegment(SegmentKind::kDefault, index, 0, 0);
  segments_[segment].suballocated = true;
  segments_[segment].owner = kPyTorch;
  Describe(segments_[segment], nullptr);
  spaces_[index].default_segment = segment;
  return index;
}

void Ledger::Add(DeviceState& device, Space* space, Part part, int64_t bytes) {
  if (space != nullptr && space->away)
    device.away += bytes;
  else
    device.total += bytes;
  // NVML's figure of the process has no RM-internal memory.
  if (space != nullptr && part != Part::kRmInternal)
    space->total += bytes;
}

void Ledger::NoteVersion(DeviceState& device) {
  ++device.version;
  changes_.push_back({tables::DeviceId{static_cast<uint32_t>(device.id.value) + 1}, now_ns_});
}

void Ledger::Apply(std::span<const trace::Event> events) {
  for (const trace::Event& said : events) {
    if (said.time_ns > kLatestNs || said.time_ns < -kLatestNs)
      continue;
    if (event_count_ == 0 && first_ns_ == 0)
      first_ns_ = said.time_ns;
    trace::Event event = said;
    if (event_count_ != 0)
      event.time_ns = std::max(event.time_ns, now_ns_ + 1);
    now_ns_ = event.time_ns;
    last_ns_ = std::max(last_ns_, event.time_ns);
    if (ValidProcess(event.process)) {
      ProcessState& process = processes_[event.process.value];
      if (event.kind != trace::EventKind::kProcessEnd)
        process.last_ns = event.time_ns;
      if (!process.seen) {
        process.seen = true;
        iterations_.OnFirstEvent(event.process, event.time_ns);
      }
      if (process.away)
        ReturnByCall(event);
    }
    ApplyOne(event);
    ++event_count_;
  }
}

void Ledger::ApplyOne(const trace::Event& event) {
  using trace::EventKind;
  // Only the launcher's device samples and marks may belong to no process.
  if (!ValidProcess(event.process)) {
    if (event.kind == EventKind::kDeviceSample)
      OnDeviceSample(event);
    else if (event.kind == EventKind::kProcessSample)
      OnStranger(event);
    else if (event.kind == EventKind::kMark)
      marks_.push_back({event.name, event.time_ns, event.process});
    return;
  }
  switch (event.kind) {
    case EventKind::kBlockAlloc:
      return OnBlockAlloc(event);
    case EventKind::kBlockFree:
      return OnBlockFree(event);
    case EventKind::kAllocatorTotals:
      return OnAllocatorTotals(event);
    case EventKind::kAlloc:
      return OnAlloc(event);
    case EventKind::kFree:
      return OnFree(event);
    case EventKind::kHandleCreate:
      return OnHandleCreate(event);
    case EventKind::kHandleRelease:
      return OnHandleRelease(event);
    case EventKind::kHandleRetain:
      return OnHandleRetain(event);
    case EventKind::kMap:
      return OnMap(event);
    case EventKind::kUnmap:
      return OnUnmap(event);
    case EventKind::kReserve:
      return OnReserve(event);
    case EventKind::kUnreserve:
      return OnUnreserve(event);
    case EventKind::kPoolCreate:
      return OnPoolCreate(event);
    case EventKind::kPoolDestroy:
      return OnPoolDestroy(event);
    case EventKind::kPoolReading:
      return OnPoolReading(event);
    case EventKind::kContextCreate:
      return OnContextCreate(event);
    case EventKind::kContextDestroy:
      return OnContextDestroy(event);
    case EventKind::kImplicit:
      return OnImplicit(event);
    case EventKind::kReading:
      return OnReading(event);
    case EventKind::kMark:
      marks_.push_back({event.name, event.time_ns, event.process});
      if (iterations_.OnMark(event))
        phases_.OnIteration(event);
      return;
    case EventKind::kName:
      return OnName(event);
    case EventKind::kModule:
      return modules_.OnModule(event);
    case EventKind::kModuleGone:
      ++processes_[event.process.value].modules_gone;
      return modules_.OnGone(event);
    case EventKind::kStep:
      phases_.OnStep(event);
      return iterations_.OnStep(event);
    case EventKind::kState:
      return OnState(event);
    case EventKind::kTeardown:
      return OnTeardown(event);
    case EventKind::kProcessEnd:
      return OnProcessEnd(event);
    case EventKind::kDeviceSample:
      return OnDeviceSample(event);
    case EventKind::kProcessSample:
      return OnProcessSample(event);
    case EventKind::kShare:
      return OnShare(event);
    case EventKind::kPrior:
      return OnPrior(event);
    case EventKind::kCheckpoint:
      return OnCheckpoint(event);
    case EventKind::kOutOfMemory:
    case EventKind::kFailure:
      return OnOutOfMemory(event);
  }
}

void Ledger::OnTeardown(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  if (process.torn_down)
    return;
  process.torn_down = true;
  process.teardown_ns = event.time_ns;
  process.exit_ns = event.time_ns;
}

void Ledger::OnProcessEnd(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  if (process.ended)
    return;
  process.ended = true;
  if (process.exit_ns == 0)
    process.exit_ns = event.time_ns - 1;
  // The driver gives the memory back at some moment of the process's end, without an event; that it
  // ended is noticed a little later.
  const int64_t noticed_ns = std::min(event.begin_ns, event.time_ns) - kNoticedAfterNs;
  const int64_t begin_ns =
      process.torn_down ? process.teardown_ns : std::max(process.last_ns, noticed_ns);
  for (uint32_t i = 0; i < spaces_.size(); ++i) {
    if (spaces_[i].process != event.process)
      continue;
    DeviceState& device = DeviceOf(spaces_[i]);
    if (device.kind == trace::DeviceKind::kGpu)
      NoteCall(device, begin_ns, event.time_ns);
    Change change(*this, device.id, begin_ns, event.time_ns);
    spaces_[i].blocks.ForEach([&](uint32_t block, const Block&) { EndBlock(i, block, false); });
  }
  for (uint32_t i = 0; i < spaces_.size(); ++i) {
    if (spaces_[i].process != event.process)
      continue;
    DeviceState& device = DeviceOf(spaces_[i]);
    Change change(*this, device.id, begin_ns, event.time_ns + kEndsWithinNs);
    process.holdings.ForEach([&](uint32_t index, const Holding& holding) {
      if (holding.space == i && holding.kind == HoldingKind::kMapping)
        EndMapping(process, index, false);
    });
    process.holdings.ForEach([&](uint32_t index, const Holding& holding) {
      if (holding.space == i)
        EndHolding(process, index, false);
    });
    for (auto& [address, reservation] : process.reservations) {
      for (const uint32_t segment : reservation.segments) {
        if (segments_[segment].space == i)
          ReleaseSegment(process, segment);
      }
    }
    for (uint32_t item = 0; item < slow_items_.size(); ++item) {
      if (slow_items_[item].space == i)
        ChangeSlow(item, -slow_items_[item].bytes);
    }
    EndAbsence(spaces_[i], event.time_ns);
    spaces_[i].end_ns = event.time_ns;
    spaces_[i].live_contexts = 0;
    if (--device.active_processes == 0) {
      device.baseline_frozen = false;
      device.last_end_ns = event.time_ns;
    }
  }
  process.reservations.clear();
  for (DeviceState& device : devices_) {
    if (device.active_processes == 0)
      device.baseline_frozen = false;
  }
}

// CUDA_ERROR_OUT_OF_MEMORY
constexpr uint64_t kOutOfMemory = 2;

void Ledger::OnOutOfMemory(const trace::Event& event) {
  const bool by_driver = event.kind == trace::EventKind::kFailure;
  if (!ValidDevice(event.device) || (by_driver && event.value != kOutOfMemory))
    return;
  const uint32_t space = SpaceIndex(event.process, event.device, event.time_ns);
  out_of_memory_.push_back({tables::AccountId{AccountOfSpace(space)}, event.time_ns, event.size,
                            tables::ThreadId{event.thread.value},
                            tables::StackId{event.stack.value},
                            tables::StackId{event.native_stack.value},
                            tables::StringId{by_driver ? event.api.value : 0}});
}

void Ledger::Finish() {
  for (DeviceState& device : devices_) {
    if (device.kind == trace::DeviceKind::kGpu)
      CommitPending(device, INT64_MAX);
  }
  for (ProcessState& process : processes_) {
    if (process.exit_ns == 0)
      process.exit_ns = last_ns_;  // it goes on
  }
  // `before recording` may not have been negative: more was there, from the start to the end.
  for (uint32_t i = 0; i < spaces_.size(); ++i) {
    Space& space = spaces_[i];
    space.before_offset = std::max(space.before_offset, -space.before_minimum);
    if (space.before_offset == 0)
      continue;
    const uint32_t item = BeforeItem(i);
    slow_log_.push_back({item, space.before_offset, space.first_ns});
    if (space.end_ns != INT64_MAX)
      slow_log_.push_back({item, -space.before_offset, space.end_ns});
  }
  modules_.Finish();
  iterations_.Finish();
  finished_ = true;
  for (uint32_t i = 0; i < spaces_.size(); ++i)
    spaces_[i].blocks.ForEach([&](uint32_t, Block& block) { EndRow(&block, i, false); });
  for (ProcessState& process : processes_)
    process.holdings.ForEach([&](uint32_t, Holding& holding) { EndRow(&holding, false); });
}

}  // namespace vramscope::resolve
