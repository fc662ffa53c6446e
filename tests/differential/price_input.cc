// SPDX-License-Identifier: Apache-2.0
#include "differential/price_input.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace differential {
namespace {

namespace engine = vramscope::engine;
namespace trace = vramscope::trace;
namespace format = vramscope::format;
namespace price = vramscope::resolve::price;
using trace::EventKind;

price::When WhenOf(const trace::Event& event) {
  return {event.time_ns, event.begin_ns, event.end_ns};
}

format::Part PartOf(format::ImplicitKind kind) {
  switch (engine::PartOf(kind)) {
    case engine::Part::kContext:
      return format::Part::kContext;
    case engine::Part::kCode:
      return format::Part::kCode;
    case engine::Part::kLaunch:
      return format::Part::kLaunch;
    case engine::Part::kLimits:
      return format::Part::kLimits;
    case engine::Part::kStreams:
      return format::Part::kStreams;
    case engine::Part::kGraphs:
      return format::Part::kGraphs;
    default:
      return format::Part::kOtherDriver;
  }
}

bool OnlyTakes(format::ImplicitKind kind, std::string_view api) {
  using format::ImplicitKind;
  return kind == ImplicitKind::kInit || kind == ImplicitKind::kFunction ||
         kind == ImplicitKind::kLaunch ||
         (kind == ImplicitKind::kStream && api.find("Destroy") == std::string_view::npos) ||
         (kind == ImplicitKind::kModule && api.find("Unload") == std::string_view::npos);
}

// Calls that may move memory, whether they did or not.
bool IsDriverCall(EventKind kind) {
  return kind == EventKind::kAlloc || kind == EventKind::kFree ||
         kind == EventKind::kHandleCreate || kind == EventKind::kHandleRelease ||
         kind == EventKind::kUnmap || kind == EventKind::kPoolReading ||
         kind == EventKind::kPoolDestroy;
}

}  // namespace

PriceInputs::PriceInputs(const trace::Trace& trace)
    : trace_(trace),
      ledger_(trace, {}),
      devices_(trace.devices().size()),
      arrays_(trace.processes().size()),
      array_counts_(trace.devices().size()) {
  for (price::DeviceInput& device : devices_)
    device.processes.resize(trace.processes().size());
}

void PriceInputs::Apply(const trace::Event& event) {
  const bool known = event.process.value < trace_.processes().size();
  const bool gpu = Knows(event.device);
  price::DeviceInput* device = gpu ? &devices_[static_cast<size_t>(event.device.value)] : nullptr;
  const uint32_t process = known ? event.process.value : price::kNone;
  switch (event.kind) {
    case EventKind::kDeviceSample:
      if (gpu)
        device->samples.push_back({WhenOf(event), static_cast<int64_t>(event.size)});
      return;
    case EventKind::kProcessSample:
      if (gpu)
        device->figures.push_back({WhenOf(event), process, static_cast<int64_t>(event.size)});
      return;
    case EventKind::kReading:
      if (gpu && known && event.value >= event.size)
        device->readings.push_back(
            {WhenOf(event), process, static_cast<int64_t>(event.value - event.size)});
      return;
    default:
      break;
  }
  if (!known)
    return;
  switch (event.kind) {
    case EventKind::kImplicit:
      return OnImplicit(event);
    case EventKind::kContextCreate:
      OnContext(event, true);
      break;
    case EventKind::kCheckpoint: {
      const auto kind = static_cast<format::CheckpointKind>(event.subkind);
      const bool leaves = kind == format::CheckpointKind::kCheckpoint;
      if (leaves || kind == format::CheckpointKind::kRestore) {
        for (price::DeviceInput& each : devices_)
          each.checkpoints.push_back({WhenOf(event), process, leaves});
      }
      return;
    }
    case EventKind::kPrior:
      if (event.subkind == static_cast<uint8_t>(format::PriorKind::kProcess)) {
        for (price::DeviceInput& each : devices_)
          each.processes[process].late_ns =
              std::min(each.processes[process].late_ns, event.time_ns);
      }
      break;
    case EventKind::kShare:
      for (price::DeviceInput& each : devices_)
        each.processes[process].shares_ns =
            std::min(each.processes[process].shares_ns, event.time_ns);
      break;
    case EventKind::kTeardown:
      for (price::DeviceInput& each : devices_)
        each.processes[process].teardown_ns =
            std::min(each.processes[process].teardown_ns, event.time_ns);
      break;
    case EventKind::kProcessEnd:
      for (price::DeviceInput& each : devices_) {
        price::Process& what = each.processes[process];
        const int64_t begin_ns =
            what.teardown_ns != price::kNever ? what.teardown_ns : event.begin_ns;
        if (!what.end)
          what.end = {event.time_ns, begin_ns, event.time_ns};
      }
      break;
    default:
      break;
  }
  ApplyExplicit(event);
  if (event.kind == EventKind::kContextDestroy)
    OnContext(event, false);
}

// cuInit and the like belong to no device and may take memory of each.
void PriceInputs::OnImplicit(const trace::Event& event) {
  const auto kind = event.subkind <= static_cast<uint8_t>(format::ImplicitKind::kOther)
                        ? static_cast<format::ImplicitKind>(event.subkind)
                        : format::ImplicitKind::kOther;
  price::ImplicitCall call;
  call.when = WhenOf(event);
  call.process = event.process.value;
  call.part = PartOf(kind);
  call.only_takes = OnlyTakes(kind, trace_.string(event.api));
  call.context = event.value != 0 ? event.value : event.context;
  const std::string name(trace_.string(event.name));
  call.text = trace_.string(event.api);
  call.text += (call.text.empty() || name.empty() ? "" : " ") + name;
  if (Knows(event.device)) {
    call.reallocates =
        kind == format::ImplicitKind::kLimit || kind == format::ImplicitKind::kLaunch;
    devices_[static_cast<size_t>(event.device.value)].calls.push_back(call);
    return;
  }
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (IsGpu(i))
      devices_[i].calls.push_back(call);
  }
}

void PriceInputs::OnContext(const trace::Event& event, bool creates) {
  if (!Knows(event.device))
    return;
  using Kind = price::ImplicitCall::Kind;
  price::ImplicitCall call;
  call.when = WhenOf(event);
  call.process = event.process.value;
  call.part = format::Part::kContext;
  call.kind = creates ? Kind::kContextCreate : Kind::kContextDestroy;
  call.only_takes = creates;
  call.until_reading = creates && event.begin_ns == event.end_ns;
  call.context = event.context != 0 ? event.context : event.address;
  if (!creates && event.address != 0)
    call.context = event.address;
  call.text = trace_.string(event.api);
  devices_[static_cast<size_t>(event.device.value)].calls.push_back(call);
}

void PriceInputs::ApplyExplicit(const trace::Event& event) {
  ledger_.Apply({&event, 1});
  totals_.resize(ledger_.spaces().size());
  const engine::ProcessState& process = ledger_.processes()[event.process.value];
  const auto end_ns = devices_.front().processes[event.process.value].end;
  const price::When when = event.kind == EventKind::kProcessEnd && end_ns ? *end_ns : WhenOf(event);
  std::set<int16_t> touched;
  const auto move = [&](uint32_t space_index, int64_t bytes, uint32_t array, bool before) {
    const engine::Space& space = ledger_.spaces()[space_index];
    totals_[space_index] += bytes;
    if (!Knows(space.device))
      return;
    touched.insert(space.device.value);
    devices_[static_cast<size_t>(space.device.value)].moves.push_back(
        {when, space.process.value, bytes, array, before});
  };
  // Arrays apart.
  std::map<uint64_t, Array>& arrays = arrays_[event.process.value];
  const bool may_end = event.kind == EventKind::kFree || event.kind == EventKind::kContextDestroy ||
                       event.kind == EventKind::kProcessEnd || event.kind == EventKind::kAlloc;
  const bool may_begin = event.kind == EventKind::kAlloc &&
                         event.subkind == static_cast<uint8_t>(format::MemoryKind::kArray);
  if ((may_end && !arrays.empty()) || may_begin) {
    std::set<uint64_t> live;
    process.holdings.ForEach([&](uint32_t, const engine::Holding& holding) {
      if (holding.kind != engine::HoldingKind::kMemory ||
          holding.memory != format::MemoryKind::kArray ||
          !Knows(ledger_.spaces()[holding.space].device))
        return;
      live.insert(holding.first_life);
      const auto device = static_cast<size_t>(ledger_.spaces()[holding.space].device.value);
      if (arrays.contains(holding.first_life))
        return;
      const Array array{array_counts_[device]++, holding.space,
                        static_cast<int64_t>(holding.priced)};
      arrays[holding.first_life] = array;
      move(array.space, array.bytes, array.number, false);
    });
    std::erase_if(arrays, [&](const auto& entry) {
      if (live.contains(entry.first))
        return false;
      move(entry.second.space, -entry.second.bytes, entry.second.number, false);
      return true;
    });
  }
  const bool before = event.kind == EventKind::kPrior;
  for (uint32_t i = 0; i < totals_.size(); ++i) {
    if (const int64_t bytes = ledger_.spaces()[i].total - totals_[i]; bytes != 0)
      move(i, bytes, price::kNone, before);
  }
  if (!IsDriverCall(event.kind) || !Knows(event.device) || touched.contains(event.device.value))
    return;
  devices_[static_cast<size_t>(event.device.value)].moves.push_back(
      {when, event.process.value, 0, price::kNone, false});
}

}  // namespace differential
