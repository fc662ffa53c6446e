// SPDX-License-Identifier: Apache-2.0
#include "differential/settled.h"

#include <algorithm>
#include <set>

#include "format/enums.h"

namespace differential {
namespace {

namespace trace = vramscope::trace;
namespace format = vramscope::format;
using trace::EventKind;

bool IsArray(const trace::Event& event) {
  return event.subkind == static_cast<uint8_t>(format::MemoryKind::kArray);
}

bool IsManaged(const trace::Event& event) {
  return event.kind == EventKind::kAlloc &&
         event.subkind == static_cast<uint8_t>(format::MemoryKind::kManaged);
}

// Calls during which the driver may move memory.
bool MovesMemory(EventKind kind) {
  switch (kind) {
    case EventKind::kAlloc:
    case EventKind::kFree:
    case EventKind::kHandleCreate:
    case EventKind::kHandleRelease:
    case EventKind::kUnmap:
    case EventKind::kPoolReading:
    case EventKind::kPoolDestroy:
    case EventKind::kContextCreate:
    case EventKind::kContextDestroy:
    case EventKind::kImplicit:
      return true;
    default:
      return false;
  }
}

}  // namespace

SettledTimes::SettledTimes(const trace::Trace& trace) : devices_(trace.devices().size()) {
  for (const trace::Device& device : trace.devices())
    is_gpu_.push_back(device.kind == trace::DeviceKind::kGpu);
}

void SettledTimes::Apply(const trace::Event& event, int64_t time_ns) {
  const auto said = static_cast<size_t>(event.device.value);
  bool known = event.device.value >= 0 && said < devices_.size() && is_gpu_[said];
  size_t first = known ? said : 0;
  size_t last = known ? said + 1 : 0;
  Entry entry{Entry::Kind::kImplicit, time_ns, event.begin_ns, event.end_ns, {}};
  bool is_priced_later = false;
  switch (event.kind) {
    case EventKind::kReading:
      if (!known || event.value < event.size)
        return;
      entry.kind = Entry::Kind::kReading;
      devices_[said].entries.push_back(entry);
      return;
    case EventKind::kImplicit:
      // cuInit and the like are of no device and may take memory of each.
      if (!known)
        last = devices_.size();
      is_priced_later = true;
      break;
    case EventKind::kContextDestroy:
      // Managed memory that is made in it goes with it: see below.
      if (HasManaged(event.process.value)) {
        first = 0;
        last = devices_.size();
      }
      is_priced_later = true;
      break;
    case EventKind::kContextCreate:
      is_priced_later = true;
      break;
    case EventKind::kAlloc:
    case EventKind::kFree: {
      if (IsManaged(event))
        managed_.insert({event.process.value, event.address});
      // What the UVM driver keeps of it the next reading says, of each device.
      if (event.kind == EventKind::kFree &&
          managed_.erase({event.process.value, event.address}) != 0) {
        last = devices_.size();
        first = 0;
        is_priced_later = true;
      }
      if (!IsArray(event))
        break;
      entry.array = {event.process.value, event.address};
      entry.kind = event.kind == EventKind::kAlloc ? Entry::Kind::kArray : Entry::Kind::kArrayFree;
      is_priced_later = true;
      if (event.kind == EventKind::kAlloc && known) {
        device_of_array_[entry.array] = said;
      } else if (const auto found = device_of_array_.find(entry.array);
                 found != device_of_array_.end()) {
        first = found->second;
        last = first + 1;
        device_of_array_.erase(found);
      }
      break;
    }
    default:
      break;
  }
  if (!MovesMemory(event.kind))
    return;
  for (size_t i = first; i < last; ++i) {
    if (!is_gpu_[i])
      continue;
    devices_[i].calls.emplace_back(event.begin_ns, event.end_ns);
    if (is_priced_later)
      devices_[i].entries.push_back(entry);
  }
}

bool SettledTimes::HasManaged(uint16_t process) const {
  const auto first = managed_.lower_bound({process, 0});
  return first != managed_.end() && first->first == process;
}

void SettledTimes::Finish() {
  for (Device& device : devices_)
    FinishDevice(device);
}

void SettledTimes::FinishDevice(Device& device) const {
  std::sort(device.calls.begin(), device.calls.end());
  std::vector<int64_t> latest_end;  // of the calls up to each
  for (const auto& [begin_ns, end_ns] : device.calls)
    latest_end.push_back(latest_end.empty() ? end_ns : std::max(latest_end.back(), end_ns));
  const auto is_clear = [&](const Entry& reading) {
    const auto behind = std::lower_bound(device.calls.begin(), device.calls.end(),
                                         std::pair(reading.end_ns, INT64_MIN));
    const auto before = static_cast<size_t>(behind - device.calls.begin());
    return before == 0 || latest_end[before - 1] <= reading.begin_ns;
  };

  // An array that was priced alone has a price of its own, and gives that back.
  std::set<std::pair<uint16_t, uint64_t>> priced_alone;
  std::vector<Entry> pending;
  int64_t since_ns = 0;
  for (const Entry& entry : device.entries) {
    if (entry.kind == Entry::Kind::kArrayFree && priced_alone.erase(entry.array) != 0)
      continue;
    if (entry.kind != Entry::Kind::kReading) {
      if (pending.empty())
        since_ns = entry.time_ns;
      pending.push_back(entry);
      continue;
    }
    if (pending.empty() || !is_clear(entry))
      continue;
    if (pending.size() == 1 && pending[0].kind == Entry::Kind::kArray)
      priced_alone.insert(pending[0].array);
    // A call that is still under way may take more after the reading.
    std::erase_if(pending, [&](const Entry& call) { return call.end_ns <= entry.begin_ns; });
    if (!pending.empty())
      continue;
    device.unsettled.emplace_back(since_ns, entry.time_ns);
  }
  if (!pending.empty())
    device.unsettled.emplace_back(since_ns, INT64_MAX);
}

bool SettledTimes::IsSettled(size_t device, int64_t time_ns) const {
  const auto& spans = devices_[device].unsettled;
  const auto behind = std::upper_bound(spans.begin(), spans.end(), std::pair(time_ns, INT64_MAX));
  return behind == spans.begin() || time_ns >= std::prev(behind)->second;
}

}  // namespace differential
