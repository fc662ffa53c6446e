// SPDX-License-Identifier: Apache-2.0
#include "differential/settled.h"

#include <algorithm>
#include <set>

#include "format/enums.h"

namespace differential {
namespace {

namespace trace = vramscope::trace;
namespace format = vramscope::format;
// Calls during which the driver may move memory.
template <class... Records>
bool IsOneOf(const trace::Event& event) {
  return (event.Is<Records>() || ...);
}

bool MovesMemory(const trace::Event& event) {
  return IsOneOf<trace::Alloc, trace::Free, trace::HandleCreate, trace::HandleRelease, trace::Unmap,
                 trace::PoolReading, trace::PoolDestroy, trace::ContextCreate,
                 trace::ContextDestroy, trace::Implicit>(event);
}

trace::DeviceId DeviceOf(const trace::Event& event) {
  return trace::Visit(event, [](const auto& e) {
    if constexpr (requires { e.device; })
      return e.device;
    else
      return trace::kNoDevice;
  });
}

}  // namespace

SettledTimes::SettledTimes(const trace::Trace& trace) : devices_(trace.devices().size()) {
  for (const trace::Device& device : trace.devices())
    is_gpu_.push_back(device.kind == vramscope::tables::DeviceKind::kGpu);
}

void SettledTimes::Apply(const trace::Event& event, int64_t time_ns) {
  const trace::DeviceId device = DeviceOf(event);
  const auto said = static_cast<size_t>(device.value);
  const bool known = device.value >= 0 && said < devices_.size() && is_gpu_[said];
  size_t first = known ? said : 0;
  size_t last = known ? said + 1 : 0;
  Entry entry{Entry::Kind::kImplicit, time_ns, event.begin_ns, event.end_ns, {}};
  bool is_priced_later = false;
  if (event.Is<trace::Reading>()) {
    const auto& reading = event.As<trace::Reading>();
    if (!known || reading.total < reading.free)
      return;
    entry.kind = Entry::Kind::kReading;
    devices_[said].entries.push_back(entry);
    return;
  }
  if (event.Is<trace::Implicit>()) {
    // cuInit and the like are of no device and may take memory of each.
    if (!known)
      last = devices_.size();
    is_priced_later = true;
  } else if (event.Is<trace::ContextDestroy>()) {
    // Managed memory that is made in it goes with it: see below.
    if (HasManaged(event.process.value)) {
      first = 0;
      last = devices_.size();
    }
    is_priced_later = true;
  } else if (event.Is<trace::ContextCreate>()) {
    is_priced_later = true;
  } else if (event.Is<trace::Alloc>()) {
    const auto& alloc = event.As<trace::Alloc>();
    if (alloc.kind == format::MemoryKind::kManaged)
      managed_.insert({event.process.value, alloc.address});
    if (alloc.kind == format::MemoryKind::kArray) {
      entry.array = {event.process.value, alloc.address};
      entry.kind = Entry::Kind::kArray;
      is_priced_later = true;
      if (known)
        device_of_array_[entry.array] = said;
      else
        TakeArray(entry.array, &first, &last);
    }
  } else if (event.Is<trace::Free>()) {
    const auto& free = event.As<trace::Free>();
    // What the UVM driver keeps of it the next reading says, of each device.
    if (managed_.erase({event.process.value, free.address}) != 0) {
      last = devices_.size();
      first = 0;
      is_priced_later = true;
    }
    if (free.kind == format::MemoryKind::kArray) {
      entry.array = {event.process.value, free.address};
      entry.kind = Entry::Kind::kArrayFree;
      is_priced_later = true;
      TakeArray(entry.array, &first, &last);
    }
  }
  if (!MovesMemory(event))
    return;
  for (size_t i = first; i < last; ++i) {
    if (!is_gpu_[i])
      continue;
    devices_[i].calls.emplace_back(event.begin_ns, event.end_ns);
    if (is_priced_later)
      devices_[i].entries.push_back(entry);
  }
}

void SettledTimes::TakeArray(const std::pair<uint16_t, uint64_t>& array,
                             size_t* first,
                             size_t* last) {
  const auto found = device_of_array_.find(array);
  if (found == device_of_array_.end())
    return;
  *first = found->second;
  *last = found->second + 1;
  device_of_array_.erase(found);
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
