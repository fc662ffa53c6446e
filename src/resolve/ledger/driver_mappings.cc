// SPDX-License-Identifier: Apache-2.0 Address ranges and the physical handles mapped into them.
// Each range is one segment on each device whose memory it has.
#include <algorithm>
#include <utility>

#include "resolve/driver/pricing.h"
#include "resolve/ledger/driver_objects.h"

namespace vramscope::resolve {
void DriverObjects::On(const trace::EventContext& at, const trace::Reserve& e) {
  if (e.size == 0 || e.address + e.size < e.address)
    return;
  ProcessOf(at).reservations[e.address] = {e.size, {}, false};
}

void DriverObjects::On(const trace::EventContext& at, const trace::Unreserve& e) {
  OfProcess& process = ProcessOf(at);
  const auto found = process.reservations.find(e.address);
  if (found == process.reservations.end())
    return;
  for (const uint32_t segment : found->second.segments) {
    // The address is still mapped (its unmapping was lost), or the handle is mapped elsewhere too.
    bool mapped = segments_[segment].held != 0;
    process.objects.ForEach([&](uint32_t, const DriverObject& object) {
      mapped |= object.kind == ObjectKind::kMapping && object.segment == segment;
    });
    if (!mapped)
      Release(process, segment);
  }
  process.reservations.erase(found);
}

// The segment of the reservation that contains the range. Without a recorded one, adjacent mappings
// share a segment.
uint32_t DriverObjects::ReservationFor(OfProcess& process,
                                       uint32_t account,
                                       uint64_t begin,
                                       uint64_t size) {
  auto at = process.reservations.upper_bound(begin);
  if (at != process.reservations.begin()) {
    Reservation& before = (--at)->second;
    const uint64_t end = at->first + before.size;
    if (begin < end || (before.implicit && begin == end)) {
      if (before.implicit)
        before.size = std::max(end, begin + size) - at->first;
      for (const uint32_t segment : before.segments) {
        if (segments_[segment].account == account)
          return segment;
      }
      before.segments.push_back(
          segments_.Add(SegmentKind::kReservation, account, at->first, before.size));
      return before.segments.back();
    }
  }
  const uint32_t segment = segments_.Add(SegmentKind::kReservation, account, begin, size);
  process.reservations[begin] = {size, {segment}, true};
  return segment;
}

uint32_t DriverObjects::ReservedAt(trace::ProcessId process_id,
                                   uint64_t address,
                                   uint32_t account) const {
  const OfProcess& process = processes_[process_id.value];
  auto at = process.reservations.upper_bound(address);
  if (at == process.reservations.begin() || address - (--at)->first >= at->second.size)
    return kNoIndex;
  for (const uint32_t segment : at->second.segments) {
    if (segments_[segment].account == account)
      return segment;
  }
  return kNoIndex;
}

void DriverObjects::DivideByXla(const DriverObject& object) {
  const uint32_t index = object.segment;
  if (!IsOfXlaPool(object) || !accounts_[object.account].has_xla_blocks ||
      segments_[index].suballocated)
    return;
  segments_[index].by_size = true;
  Suballocate(index, true);
}

void DriverObjects::NoteXlaBlocks(uint32_t account) {
  if (std::exchange(accounts_[account].has_xla_blocks, true))
    return;
  processes_[base_.accounts[account].process.value].objects.ForEach(
      [&](uint32_t, const DriverObject& object) {
        if (object.account == account)
          DivideByXla(object);
      });
}

uint32_t DriverObjects::XlaSegmentWithRoom(uint32_t account, uint64_t bytes) const {
  uint32_t found = kNoIndex;
  processes_[base_.accounts[account].process.value].objects.ForEach(
      [&](uint32_t, const DriverObject& object) {
        if (object.account != account || !IsOfXlaPool(object))
          return;
        const Segment& segment = segments_[object.segment];
        if (segment.by_size && segment.free_bytes() >= bytes &&
            (found == kNoIndex || segment.held > segments_[found].held))
          found = object.segment;
      });
  return found;
}

// Each byte of a handle counts in its oldest mapping. A handle mapped twice counts once, and moves
// to the next mapping when the first ends. Mappings begin at the handle's begin.
void DriverObjects::AccountMappings(OfProcess& process, uint32_t handle_index) {
  DriverObject& handle = process.objects[handle_index];
  uint64_t covered = 0;
  for (auto at = process.mappings_of.lower_bound({handle_index, 0, 0});
       at != process.mappings_of.end() && std::get<0>(*at) == handle_index &&
       covered < handle.priced;
       ++at) {
    const uint32_t mapping = std::get<2>(*at);
    const uint64_t end = std::max(covered, std::min(process.objects[mapping].size, handle.priced));
    AccountMapping(process, mapping, covered, end);
    covered = end;
  }
}

// Counts the bytes [from, end) of its handle in the mapping's segment.
void DriverObjects::AccountMapping(OfProcess& process,
                                   uint32_t index,
                                   uint64_t from,
                                   uint64_t end) {
  DriverObject& mapping = process.objects[index];
  DriverObject& handle = process.objects[mapping.handle];
  const int64_t change = Signed(end - from) - Signed(mapping.accounted);
  if (change == 0 && (from == mapping.accounted_from || end == from))
    return;
  const uint64_t before = mapping.address + mapping.accounted_from;
  if (mapping.accounted != 0)
    segments_.Unback(mapping.segment, before, before + mapping.accounted);
  if (end != from)
    segments_.Back(mapping.segment, mapping.address + from, mapping.address + end);
  rows_.End(&mapping, false);
  if (mapping.backing) {
    base_.Move(mapping.account, -change);
    rows_.End(&handle, false);
    handle.backing_bytes += static_cast<uint64_t>(change);
  }
  handle.accounted += static_cast<uint64_t>(change);
  mapping.accounted_from = from;
  mapping.accounted = end - from;
  segments_.Change(segments_[mapping.segment], change, 0, 0);
}

void DriverObjects::On(const trace::EventContext& at, const trace::Map& e) {
  OfProcess& process = ProcessOf(at);
  const uint32_t handle_index = process.numbers[kHandles].Find(e.handle);
  if (handle_index == util::FlatMap::kNone || e.address + e.size < e.address ||
      e.size > kLargestSize || process.mappings.Find(e.address) != util::FlatMap::kNone)
    return;
  const uint32_t account = process.objects[handle_index].account;
  const uint32_t index = Start(at, {.address = e.address,
                                    .size = e.size,
                                    .stack = e.stack,
                                    .native = e.native,
                                    .account = account,
                                    .handle = handle_index,
                                    .kind = ObjectKind::kMapping});
  process.mappings.FindOrAdd(e.address) = index;
  DriverObject& mapping = process.objects[index];
  DriverObject& handle = process.objects[handle_index];
  mapping.owner = handle.owner;
  mapping.segment = ReservationFor(process, account, e.address, e.size);
  mapping.backing = segments_[mapping.segment].suballocated;
  process.mappings_of.insert({handle_index, mapping.number, index});
  ++handle.mappings;
  // The size of an imported descriptor is known now.
  if (handle.memory == format::MemoryKind::kIpcImport && handle.share == kNoIndex) {
    const uint32_t share = shared_.ClaimWithoutKey(at.process, DeviceOf(handle), e.size);
    if (share != kNoIndex)
      JoinShared(at, process, handle_index, share);
  }
  process.pages.Add(e.address, e.size, mapping.segment);
  AccountMapping(process, index, handle.accounted,
                 std::max(handle.accounted, std::min(e.size, handle.priced)));
  Segment& segment = segments_[mapping.segment];
  if (mapping.backing)
    segments_.Describe(segment, rows_.KeyOfBacking(mapping));
  else
    segment.owner = handle.owner;
  DivideByXla(process.objects[index]);
}

void DriverObjects::EndMapping(OfProcess& process, uint32_t index, bool freed) {
  rows_.End(&process.objects[index], freed);
  AccountMapping(process, index, 0, 0);
  const DriverObject mapping = process.objects[index];
  process.pages.Remove(mapping.address, mapping.size);
  process.mappings.Erase(mapping.address);
  process.mappings_of.erase({mapping.handle, mapping.number, index});
  process.objects.Remove(index);
  if (--process.objects[mapping.handle].mappings > 0)
    AccountMappings(process, mapping.handle);
  EndHandleIfUnused(process, mapping.handle, freed);
}

// A segment from before recording was mapped memory. From now on it is a range of addresses, where
// other memory may be mapped.
void DriverObjects::UnmapPrior(OfProcess& process, uint64_t address) {
  const uint32_t index = process.numbers[kAddresses].Find(address);
  if (index == util::FlatMap::kNone || !process.objects[index].is_prior)
    return;
  base_.prices.NoteCall(DeviceOf(process.objects[index]));
  rows_.End(&process.objects[index], true);
  Count(process.objects[index], false);
  const DriverObject object = process.objects[index];
  process.pages.Remove(object.address, object.size);
  process.numbers[kAddresses].Erase(address);
  process.objects.Remove(index);
  process.reservations[address] = {object.size, {object.segment}, false};
  segments_.BecomeReservation(object.segment);
}

// One call may unmap several mappings.
void DriverObjects::On(const trace::EventContext& at, const trace::Unmap& e) {
  OfProcess& process = ProcessOf(at);
  uint64_t address = e.address;
  const uint64_t end = e.address + e.size;
  while (address < end) {
    const uint32_t index = process.mappings.Find(address);
    if (index == util::FlatMap::kNone) {
      UnmapPrior(process, address);
      break;
    }
    base_.prices.NoteCall(DeviceOf(process.objects[index]));
    address += std::max<uint64_t>(process.objects[index].size, 1);
    EndMapping(process, index, true);
  }
}

void DriverObjects::Suballocate(uint32_t index, bool of_program) {
  Segment& segment = segments_[index];
  OfProcess& process = processes_[base_.accounts[segment.account].process.value];
  const DriverObject* backing = nullptr;
  const auto back = [&](DriverObject& object) {
    object.of_pool = segment.by_size;
    rows_.End(&object, false);
    object.backing = true;
    backing = &object;
  };
  if (segment.kind == SegmentKind::kAllocation) {
    DriverObject& object = process.objects[segment.object];
    base_.Move(segment.account, -Signed(segment.held));
    if (object.small)
      slabs_.Cut(object);
    back(object);
  } else {
    process.objects.ForEach([&](uint32_t, DriverObject& mapping) {
      if (mapping.kind != ObjectKind::kMapping || mapping.segment != index)
        return;
      DriverObject& handle = process.objects[mapping.handle];
      base_.Move(segment.account, -Signed(mapping.accounted));
      handle.of_pool = segment.by_size;
      rows_.End(&handle, false);
      handle.backing_bytes += mapping.accounted;
      back(mapping);
    });
  }
  segment.of_program = of_program;
  if (!of_program)
    segment.owner = Owner::kPyTorch;
  segment.suballocated = true;
  segment.unplaced = backing != nullptr && backing->stack.value == 0;
  segments_.Describe(segment, backing == nullptr ? SiteKey() : rows_.KeyOfBacking(*backing));
  base_.Move(segment.account, Signed(segment.held));
}

void DriverObjects::Place(uint32_t index, tables::StackId forward) {
  Segment& segment = segments_[index];
  OfProcess& process = processes_[base_.accounts[segment.account].process.value];
  const DriverObject* backing = nullptr;
  const auto place = [&](DriverObject& object) {
    object.origin.forward = forward;
    backing = &object;
  };
  if (segment.kind == SegmentKind::kAllocation) {
    place(process.objects[segment.object]);
  } else {
    process.objects.ForEach([&](uint32_t, DriverObject& mapping) {
      if (mapping.kind == ObjectKind::kMapping && mapping.segment == index &&
          mapping.stack.value == 0)
        place(mapping);
    });
  }
  if (backing != nullptr)
    segments_.Describe(segment, rows_.KeyOfBacking(*backing));
}

}  // namespace vramscope::resolve
