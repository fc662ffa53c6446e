// SPDX-License-Identifier: Apache-2.0
#include "engine/replay/ledger.h"

#include <algorithm>
#include <numeric>

#include "engine/model/parts.h"

namespace vramscope::engine {
namespace {

constexpr size_t kParts = static_cast<size_t>(Part::kInTransit) + 1;

// Times of a damaged trace can be anything; sums and differences of these cannot overflow.
constexpr int64_t kLatestNs = int64_t{1} << 61;

int64_t SumOf(const std::vector<int64_t>& groups) {
  return std::accumulate(groups.begin(), groups.end(), int64_t{0});
}

}  // namespace

Change::Change(Ledger& ledger,
               trace::DeviceId device,
               int64_t time_ns,
               int64_t begin_ns,
               int64_t end_ns,
               bool observed)
    : ledger_(ledger),
      device_(device),
      time_ns_(time_ns),
      begin_ns_(begin_ns),
      end_ns_(end_ns),
      observed_(observed) {
  DeviceState& state = ledger_.devices_[static_cast<size_t>(device_.value)];
  state.timeline.Before(time_ns_, true, state.groups, state.height());
  total_before_ = state.total;
  away_before_ = state.away;
}

Change::~Change() {
  DeviceState& state = ledger_.devices_[static_cast<size_t>(device_.value)];
  state.timeline.After(state.height());
  if (observed_)
    ledger_.PeakCheck(state, time_ns_);
  const int64_t moved = state.total - total_before_;
  // A call that waits until the memory is back moves it then.
  if (moved == 0 && state.away != away_before_)
    ledger_.NoteMovement(state, begin_ns_, end_ns_, state.away - away_before_);
  if (moved != 0) {
    ++state.version;
    ledger_.NoteMovement(state, begin_ns_, end_ns_, moved);
    if (observed_ && state.peak.lives == ledger_.next_life_ && state.peak_height == state.height())
      state.peak.version = state.version;
  }
}

Ledger::Ledger(const trace::Trace& trace, LedgerOptions options)
    : trace_(trace),
      options_(std::move(options)),
      owners_(trace),
      phases_(trace),
      modules_(trace),
      iterations_(trace),
      life_categories_(trace.processes().size()),
      devices_(trace.devices().size()),
      processes_(trace.processes().size()),
      space_index_(devices_.size() * processes_.size(), kNoIndex),
      recently_freed_(size_t{1} << 14) {
  first_ns_ = trace.session().start_ns;
  if (options_.capture) {
    for (const auto& [begin_ns, end_ns] : options_.capture->windows) {
      windows_.push_back({begin_ns, end_ns, false});
      next_window_ns_ = std::min(next_window_ns_, begin_ns);
    }
  }
  unknown_frees_.name = format::LossName(static_cast<uint64_t>(format::Loss::kUnknownFree));
  double_allocs_.name = format::LossName(static_cast<uint64_t>(format::Loss::kDoubleAlloc));
  unknown_names_.name = format::LossName(static_cast<uint64_t>(format::Loss::kNamesWithoutMemory));
  for (size_t i = 0; i < devices_.size(); ++i) {
    devices_[i].id = trace::DeviceId{static_cast<int16_t>(i)};
    devices_[i].kind = trace.devices()[i].kind;
    devices_[i].timeline.Start(first_ns_);
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
  space.groups.resize(state.groups.size());
  const uint32_t segment = NewSegment(SegmentKind::kDefault, index, 0, 0);
  segments_[segment].carved_life = 0;
  segments_[segment].owner = kPyTorch;
  spaces_[index].default_segment = segment;
  return index;
}

uint32_t Ledger::Group(DeviceState& device, OwnerId owner, Part part, Category category) {
  const size_t at = (owner.value * kParts + static_cast<size_t>(part)) * kCategories +
                    static_cast<size_t>(category);
  if (at >= device.group_lookup.size())
    device.group_lookup.resize(at + kParts * kCategories);
  if (device.group_lookup[at] == 0) {
    device.group_keys.push_back({owner, part, category});
    device.groups.push_back(0);
    for (Space& space : spaces_) {
      if (space.device == device.id)
        space.groups.push_back(0);
    }
    device.group_lookup[at] = static_cast<uint32_t>(device.groups.size());
  }
  return device.group_lookup[at] - 1;
}

void Ledger::Add(DeviceState& device,
                 Space* space,
                 OwnerId owner,
                 Part part,
                 Category category,
                 int64_t bytes) {
  if (bytes == 0)
    return;
  const uint32_t group = Group(device, owner, part, category);
  const int64_t used = IsUse(part) ? bytes : 0;
  if (space == nullptr) {
    device.groups[group] += bytes;
  } else {
    AddToGroup(device, *space, group, bytes);
    space->used += used;
  }
  if (space != nullptr && space->away) {
    device.away += bytes;
  } else {
    device.total += bytes;
    device.used += used;
  }
  // NVML's figure of the process has no RM-internal memory.
  if (space == nullptr || part == Part::kRmInternal)
    return;
  space->total += bytes;
  if (options_.movements != nullptr) {
    const auto index = static_cast<uint32_t>(space - spaces_.data());
    options_.movements->OnMovement(index, part, category, false, Phase::kOther, bytes);
  }
}

void Ledger::AddBracketed(DeviceState& device, Space* space, int64_t bytes) {
  if (space != nullptr)
    space->bracketed += bytes;
  if (space == nullptr || !space->away)
    device.bracketed += bytes;
}

void Ledger::PeakCheck(DeviceState& device, int64_t time_ns) {
  if (device.height() <= device.peak_height && device.peak.set)
    return;
  if (!windows_.empty()) {
    const Window& window = windows_[static_cast<size_t>(device.id.value)];
    if (!window.open || time_ns > window.end_ns)
      return;
  }
  SetPeak(device, time_ns);
}

void Ledger::SetPeak(DeviceState& device, int64_t time_ns) {
  device.peak_height = device.height();
  device.bracketed_at_peak = device.bracketed;
  Capture& peak = device.peak;
  peak.set = true;
  peak.time_ns = time_ns;
  peak.lives = next_life_;
  peak.log_size = slow_log_.size();
  peak.version = device.version;
  peak.Forget();
}

// A window begins with what stands there already.
void Ledger::OpenWindows(int64_t time_ns) {
  next_window_ns_ = INT64_MAX;
  for (size_t i = 0; i < windows_.size(); ++i) {
    if (!windows_[i].open && time_ns > windows_[i].begin_ns) {
      windows_[i].open = true;
      SetPeak(devices_[i], std::max(windows_[i].begin_ns, first_ns_));
    }
    if (!windows_[i].open)
      next_window_ns_ = std::min(next_window_ns_, windows_[i].begin_ns);
  }
}

void Ledger::SetCapture(Capture& capture, int64_t time_ns) {
  capture.set = true;
  capture.time_ns = time_ns;
  capture.lives = next_life_;
  capture.log_size = slow_log_.size();
  capture.versions.clear();
  for (const DeviceState& device : devices_)
    capture.versions.push_back(device.version);
  capture.Forget();
}

void Ledger::Apply(std::span<const trace::Event> events) {
  const bool by_time = options_.capture && options_.capture->time_ns;
  const bool by_ordinal = options_.capture && options_.capture->event_ordinal;
  for (const trace::Event& event : events) {
    if (event.time_ns > kLatestNs || event.time_ns < -kLatestNs)
      continue;
    if (event_count_ == 0 && first_ns_ == 0)
      first_ns_ = event.time_ns;
    if (by_time && !requested_.set && event.time_ns > *options_.capture->time_ns)
      SetCapture(requested_, *options_.capture->time_ns);
    if (event.time_ns > next_window_ns_)
      OpenWindows(event.time_ns);
    last_ns_ = std::max(last_ns_, event.time_ns);
    if (ValidProcess(event.process)) {
      ProcessState& process = processes_[event.process.value];
      process.last_ns = event.time_ns;
      if (!process.seen) {
        process.seen = true;
        iterations_.OnFirstEvent(event.process, event.time_ns);
      }
    }
    if (ValidProcess(event.process) && processes_[event.process.value].away)
      ReturnByCall(event);
    ApplyOne(event);
    ++event_count_;
    if (by_ordinal && event_count_ == *options_.capture->event_ordinal)
      SetCapture(requested_, event.time_ns);
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
      marks_.push_back(
          {std::string(trace_.string(event.name)), event.time_ns, event_count_ + 1, event.process});
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
      marks_.push_back(
          {std::string(trace_.string(event.name)), event.time_ns, event_count_ + 1, event.process});
      if (iterations_.OnMark(event))
        phases_.OnIteration(event);
      return;
    case EventKind::kName:
      return OnName(event);
    case EventKind::kModule:
      return modules_.OnModule(event);
    case EventKind::kModuleGone:
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
      return;
  }
}

void Ledger::OnTeardown(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  if (process.torn_down)
    return;
  process.torn_down = true;
  process.teardown_ns = event.time_ns;
  SetCapture(process.end, event.time_ns);
}

void Ledger::OnProcessEnd(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  if (process.ended)
    return;
  process.ended = true;
  if (!process.end.set)
    SetCapture(process.end, event.time_ns);
  // The driver gives the memory back at some moment of the process's end, without an event.
  const int64_t begin_ns = process.torn_down ? process.teardown_ns : event.begin_ns;
  for (uint32_t i = 0; i < spaces_.size(); ++i) {
    if (spaces_[i].process != event.process)
      continue;
    DeviceState& device = DeviceOf(spaces_[i]);
    if (device.kind == trace::DeviceKind::kGpu)
      NoteCall(device, begin_ns, event.time_ns);
    // With `before recording` known only at the end, the last step back to zero may look like one
    // up; it is no peak.
    Change change(*this, device.id, event.time_ns, begin_ns, event.time_ns, false);
    spaces_[i].blocks.ForEach(
        [&](uint32_t block, const Block&) { EndBlock(i, block, event.time_ns, kNever); });
  }
  for (uint32_t i = 0; i < spaces_.size(); ++i) {
    if (spaces_[i].process != event.process)
      continue;
    DeviceState& device = DeviceOf(spaces_[i]);
    Change change(*this, device.id, event.time_ns, begin_ns, event.time_ns, false);
    process.holdings.ForEach([&](uint32_t index, const Holding& holding) {
      if (holding.space == i && holding.kind == HoldingKind::kMapping)
        EndMapping(process, index, kNever);
    });
    process.holdings.ForEach([&](uint32_t index, const Holding& holding) {
      if (holding.space == i)
        EndHolding(process, index, kNever);
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

void Ledger::CheckSums(const DeviceState& device) {
  const int64_t groups = SumOf(device.groups);
  bool own_groups = true;
  int64_t spaces = device.baseline_item == kNoIndex ? 0 : slow_items_[device.baseline_item].bytes;
  for (const Space& space : spaces_) {
    if (space.device != device.id)
      continue;
    const int64_t rm = space.rm_item == kNoIndex ? 0 : slow_items_[space.rm_item].bytes;
    own_groups = own_groups && space.total + rm == SumOf(space.groups);
    spaces += space.away ? 0 : space.total + rm;
  }
  if (groups == device.total && spaces == device.total && own_groups)
    return;
  if (violations_.sums++ == 0) {
    violations_.first_sum = "groups " + std::to_string(groups) + ", processes " +
                            std::to_string(spaces) + ", device " + std::to_string(device.total);
  }
}

void Ledger::Finish() {
  for (DeviceState& device : devices_) {
    if (device.kind == trace::DeviceKind::kGpu)
      CommitPending(device, INT64_MAX);
  }
  for (ProcessState& process : processes_) {
    if (!process.end.set)
      SetCapture(process.end, process.last_ns);
  }
  if (next_window_ns_ != INT64_MAX)
    OpenWindows(INT64_MAX);
  if (options_.capture && !requested_.set)
    SetCapture(requested_, last_ns_);
  for (DeviceState& device : devices_) {
    device.timeline.Finish(last_ns_, device.groups, device.height());
    CheckSums(device);
  }
  for (Space& space : spaces_) {
    space.before_offset = std::max(space.before_offset, -space.before_minimum);
    if (space.before_offset == 0)
      continue;
    DeviceState& device = DeviceOf(space);
    CorrectTimeline(device, space, Group(device, kNoOwner, Part::kBeforeRecording),
                    space.before_offset, space.first_ns, space.end_ns);
  }
  modules_.Finish();
  iterations_.Finish();
  for (uint32_t i = 0; i < spaces_.size(); ++i) {
    spaces_[i].blocks.ForEach([&](uint32_t, Block& block) {
      Decide(spaces_[i].process, false, &block);
      if (options_.observer != nullptr)
        options_.observer->OnBlock(block, i, kNever);
    });
  }
  for (uint16_t i = 0; i < processes_.size(); ++i) {
    const trace::ProcessId process{i};
    processes_[i].holdings.ForEach([&](uint32_t, Holding& holding) {
      if (holding.kind == HoldingKind::kMapping)
        return;
      Decide(process, false, &holding);
      if (options_.observer != nullptr)
        options_.observer->OnHolding(holding, kNever);
    });
    life_categories_.SetKnown(process, phases_.Knows(process));
  }
}

}  // namespace vramscope::engine
