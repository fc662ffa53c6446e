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

Ledger::Ledger(const trace::Trace& trace, tables::AllocationSink& sink)
    : trace_(trace),
      rows_(sink),
      owners_(trace),
      phases_(trace),
      modules_(trace),
      iterations_(trace),
      prices_(trace),
      processes_(trace.processes().size()),
      space_index_(trace.devices().size() * processes_.size(), kNoIndex),
      recently_freed_(size_t{1} << 14) {
  first_ns_ = trace.session().start_ns;
  unknown_frees_.name = format::LossName(static_cast<uint64_t>(format::Loss::kUnknownFree));
  double_allocs_.name = format::LossName(static_cast<uint64_t>(format::Loss::kDoubleAlloc));
  unknown_names_.name = format::LossName(static_cast<uint64_t>(format::Loss::kNamesWithoutMemory));
  for (size_t i = 0; i < trace.devices().size(); ++i) {
    const trace::DeviceId device{static_cast<int16_t>(i)};
    if (trace.devices()[i].kind == trace::DeviceKind::kHost)
      host_device_ = device;
    if (trace.devices()[i].kind == trace::DeviceKind::kCpu && !ValidDevice(cpu_device_))
      cpu_device_ = device;
  }
}

uint32_t Ledger::SpaceIndex(trace::ProcessId process, trace::DeviceId device, int64_t time_ns) {
  const size_t at = process.value * trace_.devices().size() + static_cast<size_t>(device.value);
  if (space_index_[at] != kNoIndex)
    return space_index_[at];
  const auto index = static_cast<uint32_t>(spaces_.size());
  space_index_[at] = index;
  spaces_.emplace_back();
  Space& space = spaces_.back();
  space.process = process;
  space.device = device;
  space.kind = trace_.devices()[static_cast<size_t>(device.value)].kind;
  space.first_ns = time_ns;
  const uint32_t segment = NewSegment(SegmentKind::kDefault, index, 0, 0);
  segments_[segment].suballocated = true;
  segments_[segment].owner = kPyTorch;
  Describe(segments_[segment], nullptr);
  spaces_[index].default_segment = segment;
  return index;
}

void Ledger::ChangeCounter(uint32_t counter, int64_t bytes) {
  counters_.Step(counter, bytes, now_ns_);
  Move(spaces_[counters_[counter].space], bytes);
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
    }
    prices_.BeginEvent(event);
    ApplyOne(event);
    prices_.EndEvent();
    ++event_count_;
  }
}

void Ledger::ApplyOne(const trace::Event& event) {
  using trace::EventKind;
  // Only the launcher's device samples and marks may belong to no process.
  if (!ValidProcess(event.process)) {
    if (event.kind == EventKind::kDeviceSample)
      prices_.OnDeviceSample(event);
    else if (event.kind == EventKind::kProcessSample)
      OnProcessSample(event);
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
      return prices_.OnDeviceSample(event);
    case EventKind::kProcessSample:
      return OnProcessSample(event);
    case EventKind::kShare:
      return OnShare(event);
    case EventKind::kPrior:
      return OnPrior(event);
    case EventKind::kCheckpoint:
      return prices_.OnCheckpoint(event);
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
  prices_.OnTeardown(event);
}

// Figures are of the driver's doing: from the first on, the process has an account there.
void Ledger::OnImplicit(const trace::Event& event) {
  if (ValidDevice(event.device))
    SpaceIndex(event.process, event.device, event.time_ns);
  prices_.OnImplicit(event);
}

void Ledger::OnContextCreate(const trace::Event& event) {
  if (!ValidDevice(event.device))
    return;
  spaces_[SpaceIndex(event.process, event.device, event.time_ns)].driver_events = true;
  prices_.OnContextCreate(event);
}

void Ledger::OnContextDestroy(const trace::Event& event) {
  if (!ValidDevice(event.device))
    return;
  SpaceIndex(event.process, event.device, event.time_ns);
  EndHoldingsOfContext(processes_[event.process.value],
                       event.address != 0 ? event.address : event.context);
  prices_.OnContextDestroy(event);
}

void Ledger::OnReading(const trace::Event& event) {
  if (!ValidDevice(event.device) || event.value < event.size)
    return;
  SpaceIndex(event.process, event.device, event.time_ns);
  prices_.OnReading(event);
}

void Ledger::OnProcessSample(const trace::Event& event) {
  prices_.OnProcessSample(event);
  if (ValidProcess(event.process) && prices_.IsGpu(event.device) &&
      processes_[event.process.value].began_late)
    SpaceIndex(event.process, event.device, event.time_ns);
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
  prices_.OnProcessEnd(event, begin_ns, event.time_ns + kEndsWithinNs);
  for (uint32_t i = 0; i < spaces_.size(); ++i) {
    if (spaces_[i].process == event.process)
      spaces_[i].blocks.ForEach([&](uint32_t block, const Block&) { EndBlock(i, block, false); });
  }
  for (uint32_t i = 0; i < spaces_.size(); ++i) {
    if (spaces_[i].process == event.process)
      EndSpace(process, i);
  }
  process.reservations.clear();
}

void Ledger::EndSpace(ProcessState& process, uint32_t space) {
  process.holdings.ForEach([&](uint32_t index, const Holding& holding) {
    if (holding.space == space && holding.kind == HoldingKind::kMapping)
      EndMapping(process, index, false);
  });
  process.holdings.ForEach([&](uint32_t index, const Holding& holding) {
    if (holding.space == space)
      EndHolding(process, index, false);
  });
  for (auto& [address, reservation] : process.reservations) {
    for (const uint32_t segment : reservation.segments) {
      if (segments_[segment].space == space)
        ReleaseSegment(process, segment);
    }
  }
  segments_.ForEach([&](uint32_t, Segment& segment) {
    if (segment.space == space && segment.held_counter != kNoIndex)
      ChangeHeld(segment, -static_cast<int64_t>(segment.held));
  });
  const Space& ended = spaces_[space];
  for (const uint32_t counter :
       {ended.before_counter, ended.graph_used_counter, ended.graph_cached_counter}) {
    if (counter != kNoIndex)
      ChangeCounter(counter, -counters_[counter].bytes);
  }
  spaces_[space].end_ns = now_ns_;
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
  for (ProcessState& process : processes_) {
    if (process.exit_ns == 0)
      process.exit_ns = last_ns_;  // it goes on
  }
  modules_.Finish();
  iterations_.Finish();
  finished_ = true;
  for (uint32_t i = 0; i < spaces_.size(); ++i)
    spaces_[i].blocks.ForEach([&](uint32_t, Block& block) { EndRow(&block, i, false); });
  for (ProcessState& process : processes_)
    process.holdings.ForEach([&](uint32_t, Holding& holding) { EndRow(&holding, false); });
  prices_.Finish();
  for (size_t i = 0; i < trace_.devices().size(); ++i) {
    device_prices_.push_back(price::PriceDevice(prices_.input(i)));
    AddPriced(trace::DeviceId{static_cast<int16_t>(i)});
  }
  EndArrayRows();
  LiftBefore();
}

}  // namespace vramscope::resolve
