// SPDX-License-Identifier: Apache-2.0
// Processes whose memory is not on the device for a while: the driver moves all of it to host
// memory (cuCheckpointProcessCheckpoint) and back (Restore), at the same addresses. Lives go on
// meanwhile, in the process's own sums; the device's totals are without them.
//
// The process makes no call for that, and a tool that nobody records may ask for it. Then NVML's
// figures tell:
//
//   process figure   700              0 ...              700     of the launcher's list
//   device figure    900  900  400  200  200  200  650  900
//                         |---------|              |----|
//                          in transit           in transit
//
// It is back when NVML's figure is, or when a driver call of its own ends: they wait until then.
#include <algorithm>

#include "resolve/ledger.h"
#include "resolve/pricing.h"

namespace vramscope::resolve {
namespace {

// What NVML may list of a process that has nothing, and what figures may differ by.
constexpr int64_t kNearlyNothing = 4 << 20;
// No less than this is looked for when it is gone: contexts have more.
constexpr int64_t kWorthMissing = 32 << 20;

int64_t Signed(uint64_t bytes) {
  return static_cast<int64_t>(bytes);
}

bool HasFigure(const ProcessSampleRecord& sample) {
  return Signed(sample.used) > kNearlyNothing;
}

// Calls that take memory or ask for it have ended at their event's time. Frees are stamped when
// they begin, and what PyTorch does to its blocks needs no call.
bool ShowsItself(const trace::Event& event) {
  using trace::EventKind;
  switch (event.kind) {
    case EventKind::kAlloc:
    case EventKind::kHandleCreate:
    case EventKind::kPoolReading:
    case EventKind::kReading:
    case EventKind::kImplicit:
    case EventKind::kContextCreate:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Ledger::OnCheckpoint(const trace::Event& event) {
  const auto kind = static_cast<format::CheckpointKind>(event.subkind);
  const bool leaves = kind == format::CheckpointKind::kCheckpoint;
  if ((!leaves && kind != format::CheckpointKind::kRestore) ||
      processes_[event.process.value].ended)
    return;
  for (Space& space : spaces_) {
    DeviceState& device = DeviceOf(space);
    if (space.process != event.process || device.kind != trace::DeviceKind::kGpu)
      continue;
    NoteCall(device, event.begin_ns, event.end_ns);
    // NVML may have said so while the call was under way.
    if (space.away == leaves)
      NoteMovement(device, event.begin_ns, event.end_ns, leaves ? -space.total : space.total);
    else if (leaves)
      Leave(space, event.time_ns, event.begin_ns, event.end_ns);
    else
      Return(space, event.time_ns, event.begin_ns, event.end_ns);
  }
}

void Ledger::MoveAll(DeviceState& device, const Space& space, int64_t sign) {
  // NVML's figure of the process has no RM-internal memory, but it goes too.
  const int64_t rm = space.rm_item == kNoIndex ? 0 : slow_items_[space.rm_item].bytes;
  device.total += sign * (space.total + rm);
  device.away -= sign * (space.total + rm);
}

void Ledger::Leave(Space& space, int64_t time_ns, int64_t begin_ns, int64_t end_ns) {
  DeviceState& device = DeviceOf(space);
  Change change(*this, device.id, begin_ns, end_ns);
  MoveAll(device, space, -1);
  space.away = true;
  space.rm_pending = false;
  space.brackets.clear();  // what comes back may be less
  space.absences.push_back({time_ns, kNever});
  processes_[space.process.value].away = true;
}

void Ledger::Return(Space& space, int64_t time_ns, int64_t begin_ns, int64_t end_ns) {
  DeviceState& device = DeviceOf(space);
  Change change(*this, device.id, begin_ns, end_ns);
  MoveAll(device, space, 1);
  EndAbsence(space, time_ns);
}

void Ledger::EndAbsence(Space& space, int64_t time_ns) {
  if (!space.away)
    return;
  space.away = false;
  space.absences.back().to_ns = time_ns;
  processes_[space.process.value].away =
      std::any_of(spaces_.begin(), spaces_.end(),
                  [&](const Space& other) { return other.process == space.process && other.away; });
}

// The begin of the last sample at which the device had what the ledger said.
int64_t Ledger::LastAgreeing(const DeviceState& device, int64_t not_before_ns) const {
  const auto agreeing =
      std::find_if(device.samples.rbegin(), device.samples.rend(), [&](const auto& sample) {
        return sample.begin_ns <= not_before_ns ||
               std::abs(Signed(sample.used) - sample.ledger) <= kNearlyNothing;
      });
  return agreeing == device.samples.rend() ? not_before_ns
                                           : std::max(agreeing->begin_ns, not_before_ns);
}

// The process's figure is gone, and the device's has sunk by it.
void Ledger::LookForAbsence(Space& space, const trace::Event& sample) {
  const ProcessState& process = processes_[space.process.value];
  if (space.away || process.torn_down || process.ended || space.samples.empty() ||
      HasFigure(space.samples.back()) || space.total < kWorthMissing)
    return;
  const auto last = std::find_if(space.samples.rbegin(), space.samples.rend(), HasFigure);
  if (last == space.samples.rend() ||
      (!space.absences.empty() && space.samples.back().begin_ns <= space.absences.back().to_ns))
    return;
  const DeviceState& device = DeviceOf(space);
  const bool sunk =
      std::any_of(device.samples.rbegin(), device.samples.rend(), [&](const auto& seen) {
        return seen.begin_ns >= last->begin_ns &&
               seen.ledger - Signed(seen.used) >= space.total / 2;
      });
  if (sunk)
    Leave(space, sample.time_ns, LastAgreeing(device, last->begin_ns), sample.end_ns);
}

// All of it is back, or what there is does not grow any more.
void Ledger::ReturnByFigure(Space& space, const trace::Event& sample) {
  if (!space.away || sample.begin_ns <= space.absences.back().from_ns)
    return;
  const auto figure = Signed(sample.size);
  const bool settled = !space.samples.empty() && space.samples.back().used == sample.size &&
                       space.samples.back().begin_ns > space.absences.back().from_ns;
  if (figure > kNearlyNothing && (figure >= space.total - kNearlyNothing || settled))
    Return(space, sample.time_ns, LastAgreeing(DeviceOf(space), space.absences.back().from_ns),
           sample.end_ns);
}

// Processes are listed seldom: sooner, the device has just what it would have with the one that is
// away.
void Ledger::ReturnByDevice(DeviceState& device, const trace::Event& sample) {
  Space* away = nullptr;
  for (Space& space : spaces_) {
    if (space.device != device.id || !space.away)
      continue;
    if (away != nullptr)
      return;
    away = &space;
  }
  if (away == nullptr || away->total < kWorthMissing ||
      sample.begin_ns <= away->absences.back().from_ns ||
      std::abs(Signed(sample.size) - device.total - device.away) > kNearlyNothing)
    return;
  Return(*away, sample.time_ns, LastAgreeing(device, away->absences.back().from_ns), sample.end_ns);
}

void Ledger::ReturnByCall(const trace::Event& event) {
  if (!ShowsItself(event))
    return;
  for (Space& space : spaces_) {
    if (space.process == event.process && space.away &&
        event.time_ns > space.absences.back().from_ns)
      Return(space, event.time_ns, LastAgreeing(DeviceOf(space), space.absences.back().from_ns),
             event.time_ns);
  }
}

}  // namespace vramscope::resolve
