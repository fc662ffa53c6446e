// SPDX-License-Identifier: Apache-2.0
// NVML's figures from outside, and what the ledger said at the same time.
#include <algorithm>

#include "resolve/ledger.h"
#include "resolve/pricing.h"

namespace vramscope::resolve {
namespace {

constexpr size_t kMaxCalls = size_t{1} << 16;

// Of calls that are in the ledger already and may have happened after the sample.
template <class Sample>
void AddUnderWay(const std::vector<CallUnderWay>& calls, Sample* sample) {
  for (const CallUnderWay& call : calls) {
    if (call.end_ns > sample->begin_ns - kClockErrorNs &&
        call.begin_ns < sample->end_ns + kClockErrorNs)
      (call.bytes > 0 ? sample->low : sample->high) += call.bytes > 0 ? call.bytes : -call.bytes;
  }
}

}  // namespace

// Bytes that moved in a call [begin, end] may have moved before or after any sample that overlaps
// it. Samples before this event stand without the bytes, later ones with them.
void Ledger::NoteMovement(DeviceState& device, int64_t begin_ns, int64_t end_ns, int64_t bytes) {
  WidenOverlapping(device.samples, begin_ns, end_ns, bytes);
  // Of whose process the call was does not matter: the interval is wide enough either way.
  for (Space& space : spaces_) {
    if (space.device == device.id)
      WidenOverlapping(space.samples, begin_ns, end_ns, bytes);
  }
  if (device.kind != trace::DeviceKind::kGpu)
    return;
  if (device.calls.size() >= kMaxCalls)
    device.calls.erase(device.calls.begin(), device.calls.begin() + kMaxCalls / 2);
  device.calls.push_back({begin_ns, end_ns, bytes});
}

uint32_t Ledger::BaselineItem(DeviceState& device, int64_t time_ns) {
  if (device.baseline_item == kNoIndex) {
    SlowItem item;
    item.device = device.id;
    item.owner = kNoOwner;
    item.part = Part::kOtherProcesses;
    item.bracketed = true;
    item.alloc_ns = time_ns;
    device.baseline_item = NewSlowItem(std::move(item));
  }
  return device.baseline_item;
}

// While no recorded process uses the device, all of NVML's figure is somebody else's.
void Ledger::SetBaseline(DeviceState& device, const trace::Event& event) {
  BaselineItem(device, event.time_ns);
  const int64_t bytes = static_cast<int64_t>(event.size) - device.total;
  if (bytes != 0) {
    ChangeSlow(device.baseline_item, bytes);
    NoteVersion(device);
  }
  ReadingSeries& series = device.readings;
  series.has_base = true;
  series.base_gap = series.offset;
  series.has_last = false;
  series.last_unclear = false;
  series.first_assigned_from_sample = !series.has_offset;
  series.first_assigned_ns = 0;
  series.before_last.clear();
  series.after_last.clear();
  series.assigned.clear();
  series.repriced.clear();
  series.past.clear();
  series.unexplained.clear();
}

// cuInit takes memory while it runs, and is known only once it has returned: what samples showed
// meanwhile is not somebody else's.
void Ledger::RewindBaseline(DeviceState& device, const trace::Event& init) {
  if (device.baseline_item == kNoIndex)
    return;
  const auto before = std::find_if(
      device.samples.rbegin(), device.samples.rend(),
      [&](const DeviceSampleRecord& sample) { return sample.end_ns <= init.begin_ns; });
  if (before == device.samples.rend() || before == device.samples.rbegin())
    return;
  const int64_t bytes =
      static_cast<int64_t>(before->used) - static_cast<int64_t>(device.samples.back().used);
  Change change(*this, device.id, init.begin_ns, init.end_ns);
  ChangeSlow(device.baseline_item, bytes);
}

void Ledger::OnDeviceSample(const trace::Event& event) {
  if (!ValidDevice(event.device) || event.size > kLargestSize)
    return;
  DeviceState& device = devices_[static_cast<size_t>(event.device.value)];
  if (device.away != 0)
    ReturnByDevice(device, event);
  if (!device.baseline_frozen && event.begin_ns >= device.last_end_ns)
    SetBaseline(device, event);
  // Calls that ended before this sample began are in the ledger, and later samples begin later.
  const int64_t begin_ns = event.begin_ns - kClockErrorNs;
  std::erase_if(device.calls, [&](const CallUnderWay& call) { return call.end_ns <= begin_ns; });
  DeviceSampleRecord sample;
  sample.time_ns = event.time_ns;
  sample.begin_ns = event.begin_ns;
  sample.end_ns = event.end_ns;
  sample.used = event.size;
  sample.ledger = device.total;
  sample.version = device.version;
  sample.counted = device.baseline_frozen;
  sample.repeats = event.flags;
  AddUnderWay(device.calls, &sample);
  device.samples.push_back(sample);
  for (Space& space : spaces_) {
    if (space.device == device.id)
      LookForAbsence(space, event);
  }
  const ReadingSeries& series = device.readings;
  if (!series.has_offset && series.has_last && !series.last_unclear && series.after_last.empty() &&
      series.last_version == device.version && device.calls.empty() &&
      series.last_end_ns <= event.begin_ns) {
    ProposeOffset(device, static_cast<int64_t>(series.last_used - event.size), event.end_ns);
  } else if (!series.has_offset && series.has_last && !series.last_unclear &&
             series.first_assigned_from_sample && series.after_last.empty() &&
             device.calls.empty() && static_cast<int64_t>(event.size) == device.total) {
    // What the readings assigned, from a sample on, is what another sample shows: no difference.
    ProposeOffset(device, 0, event.end_ns);
  }
}

void Ledger::OnProcessSample(const trace::Event& event) {
  if (!ValidDevice(event.device) || event.size > kLargestSize)
    return;
  processes_[event.process.value].figures[event.device.value] = event.size;
  SettleBefore(event.process, event.device, event.time_ns);
  const size_t at = event.process.value * devices_.size() + static_cast<size_t>(event.device.value);
  if (space_index_[at] == kNoIndex)
    return;
  Space& space = spaces_[space_index_[at]];
  DeviceState& device = DeviceOf(space);
  ReturnByFigure(space, event);
  space.samples.push_back(
      {event.time_ns, event.begin_ns, event.end_ns, event.size, space.on_device()});
  AddUnderWay(device.calls, &space.samples.back());
  LookForAbsence(space, event);
  if (space.away)
    return;
  // The device's figure has memory of the kernel module that the process's has not. It comes with
  // the context, so one clean look after each context tells how much.
  // Where several contexts were made together, a look at each process's figure tells them apart.
  const bool rm_wanted = space.rm_wanted && space.context_item != kNoIndex &&
                         (device.readings.has_offset || device.readings.offset_pending ||
                          IsShared(device, space.agreed_ns));
  if ((!rm_wanted && !space.joint_share && space.brackets.empty()) ||
      !device.readings.after_last.empty())
    return;
  const bool busy = std::any_of(device.calls.begin(), device.calls.end(),
                                [&](const auto& call) { return call.end_ns > event.begin_ns; });
  if (busy)
    return;
  // At rest nothing follows that would prove it: a second figure does, or never.
  if (space.rm_pending && !space.joint_share && !IsHolder(space) &&
      space.rm_pending_used == static_cast<int64_t>(event.size) &&
      space.rm_pending_total == space.total)
    CommitFigure(device, space);
  space.rm_pending = true;
  space.rm_pending_wanted = rm_wanted;
  space.rm_pending_had_offset = device.readings.has_offset;
  space.rm_pending_total = space.total;
  space.rm_pending_used = static_cast<int64_t>(event.size);
  space.rm_pending_until_ns = event.end_ns;
  device.rm_pending = true;
}

}  // namespace vramscope::resolve
