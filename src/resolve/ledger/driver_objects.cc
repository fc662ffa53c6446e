// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger/driver_objects.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "resolve/driver/pricing.h"

namespace vramscope::resolve {
namespace {

// A communicator has some hundreds of allocations. The limit bounds the cost of a damaged trace.
constexpr size_t kRecent = 4096;

// A newer writer may use other values.
format::MemoryKind Known(format::MemoryKind kind) {
  return kind <= format::MemoryKind::kOverflow ? kind : format::MemoryKind::kExternal;
}

// Blocks of pools and shared slabs are not exported alone; their holder counts them.
bool CanBeShared(const DriverObject& object) {
  return object.kind == ObjectKind::kHandle ||
         (object.kind == ObjectKind::kMemory && !object.small &&
          (IsDeviceMemory(object.memory) || object.memory == format::MemoryKind::kIpcImport));
}

}  // namespace

DriverObjects::DriverObjects(LedgerBase& base,
                             Segments& segments,
                             Slabs& slabs,
                             Pools& pools,
                             RowMaker& rows)
    : base_(base),
      segments_(segments),
      slabs_(slabs),
      pools_(pools),
      rows_(rows),
      processes_(base.trace.processes().size()) {}

DriverObjects::NumberSpace DriverObjects::NumberSpaceOf(format::MemoryKind kind) {
  switch (kind) {
    case format::MemoryKind::kArray:
      return kArrays;
    case format::MemoryKind::kHostRegistered:
      return kRegistered;
    default:
      return kAddresses;
  }
}

// ---- any object

uint32_t DriverObjects::Start(const trace::EventContext& at, DriverObject said) {
  OfProcess& process = ProcessOf(at);
  const uint32_t index = process.objects.Add();
  DriverObject& object = process.objects[index] = std::move(said);
  object.alloc_ns = object.row_ns = at.time_ns;
  object.number = ++last_number_;
  if (process.recent.size() < kRecent)
    process.recent.emplace_back();
  process.recent[process.recent_count++ % kRecent] = {index, object.number, object.alloc_ns};
  object.thread = at.thread;
  object.owner = base_.owners.Find(object.native, object.stack);
  rows_.FillOrigin(at, object.stack, object.native, 0, &object.origin);
  if (object.origin.purpose == Purpose::kNone) {
    const Category category = CategoryOfOwner(object.owner);
    if (category == Category::kCommunication)
      object.origin.purpose = Purpose::kCommunication;
    else if (category == Category::kWorkspace)
      object.origin.purpose = Purpose::kWorkspace;
  }
  return index;
}

// The object's own bytes changed, without its segment's free bytes.
void DriverObjects::Count(const DriverObject& object, bool add) {
  const int64_t sign = add ? 1 : -1;
  const uint64_t asked = std::min(object.size, object.priced);
  if (object.managed != kNoIndex) {
    base_.prices.MoveManaged(object.managed, !add);
  } else if (object.array != kNoIndex) {
    const Account& account = base_.accounts[object.account];
    base_.prices.MoveArray(account.process, account.device, sign * Signed(object.priced),
                           object.array);
  } else {
    base_.Move(object.account, sign * Signed(object.priced - (object.backing ? asked : 0)));
  }
  if (!object.small)
    return;
  if (add)
    slabs_.Add(object);
  else
    slabs_.Remove(object);
}

// Makes it a segment that may have blocks.
uint32_t DriverObjects::AddSegment(OfProcess& process, uint32_t index) {
  DriverObject& object = process.objects[index];
  object.segment =
      segments_.Add(SegmentKind::kAllocation, object.account, object.address, object.size);
  Segment& segment = segments_[object.segment];
  segment.held = std::min(object.size, object.priced);
  segment.owner = object.owner;
  segment.object = index;
  segment.stands_for = object.stands_for;
  process.pages.Add(object.address, object.size, object.segment);
  return object.segment;
}

uint32_t DriverObjects::SegmentOfSmall(trace::ProcessId process_id, uint64_t address) {
  OfProcess& process = processes_[process_id.value];
  const uint32_t index = process.numbers[kAddresses].Find(address);
  if (index == util::FlatMap::kNone || process.objects[index].segment != kNoIndex ||
      process.objects[index].kind != ObjectKind::kMemory ||
      process.objects[index].memory != format::MemoryKind::kDevice)
    return util::FlatMap::kNone;
  return AddSegment(process, index);
}

void DriverObjects::Release(OfProcess& process, uint32_t index) {
  const Segment& segment = segments_[index];
  if (segment.kind == SegmentKind::kAllocation)
    process.pages.Remove(segment.begin, segment.end - segment.begin);
  segments_.Release(index);
}

void DriverObjects::End(OfProcess& process, uint32_t index, bool freed) {
  rows_.End(&process.objects[index], freed);
  const DriverObject object = process.objects[index];
  if (object.kind == ObjectKind::kHandle) {
    base_.Move(object.account, -Signed(object.priced));
    util::FlatMap& handles = process.numbers[kHandles];
    if (handles.Find(object.address) == index)
      handles.Erase(object.address);
  } else {
    Count(object, false);
    if (object.memory == format::MemoryKind::kAsync)
      pools_.Free(object.segment, object.priced);
    else if (object.segment != kNoIndex)
      Release(process, object.segment);
    process.numbers[NumberSpaceOf(object.memory)].Erase(object.address);
  }
  process.objects.Remove(index);
  if (object.share == kNoIndex)
    return;
  const SharedMemory::Holder holder{base_.accounts[object.account].process, index};
  const trace::DeviceId device = shared_.DeviceOf(object.share);
  const std::optional<SharedMemory::Holder> heir =
      shared_.Leave(object.share, holder, base_.progress.now_ns, freed);
  if (heir && object.priced != 0) {
    DriverObject& kept = processes_[heir->process.value].objects[heir->object];
    Inherit(*heir, device, object.priced);
    kept.maker = object.maker != 0 ? object.maker : holder.process.value + uint32_t{1};
  }
}

// From now on it counts its bytes.
void DriverObjects::Inherit(SharedMemory::Holder heir, trace::DeviceId device, uint64_t bytes) {
  DriverObject& object = processes_[heir.process.value].objects[heir.object];
  rows_.End(&object, false);
  object.account = base_.accounts.FindOrAdd(heir.process, device, base_.progress.now_ns);
  object.priced = bytes;
  object.size = object.size == 0 ? bytes : object.size;
  if (object.kind != ObjectKind::kHandle)
    return Count(object, true);
  base_.Move(object.account, Signed(bytes));
  AccountMappings(processes_[heir.process.value], heir.object);
}

void DriverObjects::EndContext(trace::ProcessId process_id, uint64_t context) {
  OfProcess& process = processes_[process_id.value];
  process.objects.ForEach([&](uint32_t index, const DriverObject& object) {
    if (object.kind == ObjectKind::kMemory && object.context == context &&
        object.memory != format::MemoryKind::kAsync)
      End(process, index, true);
  });
}

void DriverObjects::End(uint32_t account) {
  OfProcess& process = processes_[base_.accounts[account].process.value];
  process.objects.ForEach([&](uint32_t index, const DriverObject& object) {
    if (object.account == account && object.kind == ObjectKind::kMapping)
      EndMapping(process, index, false);
  });
  process.objects.ForEach([&](uint32_t index, const DriverObject& object) {
    if (object.account == account)
      End(process, index, false);
  });
  for (auto& [address, reservation] : process.reservations) {
    std::erase_if(reservation.segments, [&](uint32_t segment) {
      if (segments_[segment].account != account)
        return false;
      Release(process, segment);
      return true;
    });
  }
}

void DriverObjects::Finish() {
  for (OfProcess& process : processes_)
    process.objects.ForEach([&](uint32_t, DriverObject& object) { rows_.End(&object, false); });
}

bool DriverObjects::Name(const trace::EventContext& at, uint64_t address, const MemoryName& name) {
  OfProcess& process = ProcessOf(at);
  uint32_t index = util::FlatMap::kNone;
  for (const util::FlatMap& numbers : process.numbers) {
    // Handles are small numbers, below any address.
    if (index == util::FlatMap::kNone)
      index = numbers.Find(address);
  }
  if (const uint32_t mapping = process.mappings.Find(address); mapping != util::FlatMap::kNone)
    index = process.objects[mapping].handle;
  if (index == util::FlatMap::kNone)
    return false;
  DriverObject& object = process.objects[index];
  base_.phases.OnName(at.process, name.kind, object.origin, object.size);
  const uint32_t set = base_.names.Add(object.origin.names, name);
  // The memory was reused.
  if (set != object.origin.names && base_.names.TakesTurn(object.origin.names, name) &&
      !object.backing && object.kind == ObjectKind::kMemory) {
    rows_.End(&object, true);
    object.alloc_ns = at.time_ns;
  }
  object.origin.names = set;
  return true;
}

void DriverObjects::On(const trace::EventContext& at, const trace::Communicator& e) {
  OfProcess& process = ProcessOf(at);
  for (size_t i = process.recent_count; i > 0 && process.recent_count - i < kRecent; --i) {
    const Recent& recent = process.recent[(i - 1) % kRecent];
    if (recent.alloc_ns < at.begin_ns)
      break;
    if (process.objects[recent.object].number == recent.number)
      GiveTo(at, e, &process.objects[recent.object]);
  }
}

// Ranges end innermost first, and the inner one is more precise.
void DriverObjects::GiveTo(const trace::EventContext& at,
                           const trace::Communicator& communicator,
                           DriverObject* object) {
  const bool is_own = object->thread == at.thread;
  if (object->kind == ObjectKind::kMapping || object->communicator == Claim::kOfOwn)
    return;
  const trace::DeviceId device = DeviceOf(*object);
  const bool may_be = !base_.accounts.HasDevice(communicator.device) ||
                      device == communicator.device || device == base_.accounts.host();
  if (!is_own && (!may_be || object->owner != Owner::kNccl))
    return;
  MemoryName name{format::NameKind::kCommunicator, {}, {}, communicator.communicator, 0};
  uint32_t& names = object->origin.names;
  if (!is_own && object->communicator == Claim::kOfOther && base_.names.Add(names, name) != names)
    name.owner = 0;
  names = base_.names.Add(names, name);
  object->communicator = is_own ? Claim::kOfOwn : Claim::kOfOther;
}

void DriverObjects::NamePrivatePool(trace::ProcessId process_id,
                                    uint64_t address,
                                    const MemoryName& name) {
  OfProcess& process = processes_[process_id.value];
  uint32_t index = process.numbers[kAddresses].Find(address);
  if (index == util::FlatMap::kNone)
    index = process.mappings.Find(address);
  if (index == util::FlatMap::kNone || process.objects[index].segment == kNoIndex)
    return;
  Segment& segment = segments_[process.objects[index].segment];
  if (segment.of_program || segment.kind == SegmentKind::kPool)
    return;
  segment.is_private = true;
  segment.names = base_.names.Add(segment.names, name);
  if (segment.suballocated)
    segments_.Describe(segment, rows_.KeyOfBacking(process.objects[index]));
}

// Its blocks come later, and stay when the memory is unmapped.
void DriverObjects::NameRegion(const trace::EventContext& at,
                               uint64_t address,
                               const MemoryName& name) {
  OfProcess& process = ProcessOf(at);
  const uint32_t mapping = process.mappings.Find(address);
  if (mapping == util::FlatMap::kNone)
    return;
  segments_[process.objects[mapping].segment].region = base_.names.Add(0, name);
  Name(at, address, name);
}

// ---- allocations

void DriverObjects::On(const trace::EventContext& at, const trace::Alloc& e) {
  const format::MemoryKind kind = Known(e.kind);
  const trace::DeviceId device = IsHostMemory(kind) ? base_.accounts.host() : e.device;
  if (!base_.accounts.HasDevice(device) || e.size > kLargestSize || e.actual > kLargestSize)
    return;
  OfProcess& process = ProcessOf(at);
  const uint32_t account = base_.accounts.FindOrAdd(at.process, device, at.time_ns);
  // The account on the device whose memory it is or replaces.
  const bool overflow = kind == format::MemoryKind::kOverflow;
  if (overflow && !base_.accounts.HasDevice(e.device))
    return;
  const uint32_t asked =
      overflow ? base_.accounts.FindOrAdd(at.process, e.device, at.time_ns) : account;
  if (!IsHostMemory(kind) || overflow)
    accounts_[asked].has_calls = true;
  base_.prices.NoteCall(device);
  util::FlatMap& numbers = process.numbers[NumberSpaceOf(kind)];
  if (const uint32_t old = numbers.Find(e.address); old != util::FlatMap::kNone) {
    ++base_.progress.double_allocs.count;
    base_.progress.double_allocs.bytes += process.objects[old].priced;
    End(process, old, true);
  }
  const uint64_t bytes = std::max(e.size, e.actual);
  const uint32_t index = Start(at, {.address = e.address,
                                    .size = e.size,
                                    .priced = PriceOf(kind, e.size, e.actual),
                                    .stream = e.stream,
                                    .context = e.context,
                                    .stack = e.stack,
                                    .native = e.native,
                                    .api = e.api,
                                    .account = account,
                                    .memory = kind,
                                    .small = SharesSlab(kind, bytes)});
  numbers.FindOrAdd(e.address) = index;
  DriverObject& object = process.objects[index];
  if (overflow)
    object.stands_for = base_.accounts.DeviceRowOf(asked);
  if (kind == format::MemoryKind::kAsync) {
    object.segment =
        pools_.SegmentOf(at.process, account, e.pool == 0 ? Pools::kUnnamed : e.pool, object.owner);
    pools_.Allocate(object.segment, object.priced);
  } else if (IsLinear(kind) && bytes > kLargestUncutBytes) {
    AddSegment(process, index);
  }
  if (kind == format::MemoryKind::kArray && object.priced != 0 && base_.prices.IsGpu(device))
    object.array = base_.prices.NewArray(device);
  if (kind == format::MemoryKind::kManaged)
    object.managed = base_.prices.NewManaged(at.process, Signed(bytes),
                                             {e.api, e.stack, e.native, at.thread, object.owner});
  Count(object, true);
  // After the first block, the allocator's new segments are cached from the start.
  if (object.segment != kNoIndex && object.owner == Owner::kPyTorch && IsLinear(kind) &&
      accounts_[asked].has_blocks)
    Suballocate(object.segment, false);
  DivideByXla(object);
}

// kNoIndex if there is something at its address.
uint32_t DriverObjects::StartPrior(const trace::EventContext& at, const trace::Prior& e) {
  OfProcess& process = ProcessOf(at);
  const uint32_t account = base_.accounts.FindOrAdd(at.process, e.device, at.time_ns);
  if (process.numbers[kAddresses].Find(e.address) != util::FlatMap::kNone ||
      process.mappings.Find(e.address) != util::FlatMap::kNone ||
      process.pages.Find(e.address) != util::FlatMap::kNone)
    return kNoIndex;
  accounts_[account].has_calls = true;
  const uint32_t index = Start(at, {.address = e.address,
                                    .size = e.size,
                                    .priced = PriceOf(format::MemoryKind::kDevice, e.size, 0),
                                    .account = account,
                                    .is_prior = true});
  process.numbers[kAddresses].FindOrAdd(e.address) = index;
  return index;
}

void DriverObjects::AddPriorAllocation(const trace::EventContext& at, const trace::Prior& e) {
  if (const uint32_t index = StartPrior(at, e); index != kNoIndex)
    Count(ProcessOf(at).objects[index], true);
}

uint32_t DriverObjects::AddPriorSegment(const trace::EventContext& at, const trace::Prior& e) {
  const uint32_t index = StartPrior(at, e);
  if (index == kNoIndex)
    return kNoIndex;
  OfProcess& process = ProcessOf(at);
  DriverObject& object = process.objects[index];
  object.owner = Owner::kPyTorch;
  object.origin = {};
  const uint32_t segment = AddSegment(process, index);
  Count(object, true);
  Suballocate(segment, false);
  return segment;
}

void DriverObjects::On(const trace::EventContext& at, const trace::Free& e) {
  OfProcess& process = ProcessOf(at);
  Progress& progress = base_.progress;
  const format::MemoryKind kind = Known(e.kind);
  // One free function may serve several kinds; the kind of the allocation decides.
  uint32_t index = process.numbers[NumberSpaceOf(kind)].Find(e.address);
  // An array mapped from imported memory is found by address.
  if (index == util::FlatMap::kNone && kind == format::MemoryKind::kArray)
    index = process.numbers[kAddresses].Find(e.address);
  if (index == util::FlatMap::kNone) {
    if (e.address == 0)
      return;
    if (!progress.frees.Has(at.process, e.address))
      ++progress.unknown_frees.count;
    else if (progress.violations.freed_twice++ == 0)
      progress.violations.first_freed_twice = "driver allocation";
    return;
  }
  progress.frees.Note(at.process, e.address);
  const DriverObject& object = process.objects[index];
  base_.prices.NoteCall(DeviceOf(object));
  const Segment* segment = object.segment == kNoIndex ? nullptr : &segments_[object.segment];
  if (segment != nullptr && segment->kind == SegmentKind::kAllocation && segment->live_count > 0 &&
      !progress.processes[at.process.value].torn_down &&
      progress.violations.outside_segment++ == 0) {
    progress.violations.first_outside_segment =
        std::to_string(segment->live_count) + " blocks of a segment that was freed";
  }
  End(process, index, true);
}

// ---- physical handles

void DriverObjects::On(const trace::EventContext& at, const trace::HandleCreate& e) {
  if (!base_.accounts.HasDevice(e.device) || e.size > kLargestSize)
    return;
  OfProcess& process = ProcessOf(at);
  const uint32_t account = base_.accounts.FindOrAdd(at.process, e.device, at.time_ns);
  accounts_[account].has_calls = true;
  base_.prices.NoteCall(e.device);
  const bool imported = e.imported != 0;
  util::FlatMap& handles = process.numbers[kHandles];
  if (const uint32_t old = handles.Find(e.handle); old != util::FlatMap::kNone) {
    if (imported) {
      ++process.objects[old].references;  // imported again, or by the exporting process
      return;
    }
    // The handle number was reused: only mappings keep the old memory.
    process.objects[old].references = 0;
    handles.Erase(e.handle);
    EndHandleIfUnused(process, old, true);
  }
  const uint64_t priced = imported ? 0 : e.size;
  handles.FindOrAdd(e.handle) = Start(
      at, {.address = e.handle,
           .size = e.size,
           .priced = priced,
           .stack = e.stack,
           .native = e.native,
           .api = e.api,
           .account = account,
           .kind = ObjectKind::kHandle,
           .memory = imported ? format::MemoryKind::kIpcImport : format::MemoryKind::kDevice});
  base_.Move(account, Signed(priced));
}

void DriverObjects::EndHandleIfUnused(OfProcess& process, uint32_t index, bool freed) {
  const DriverObject& handle = process.objects[index];
  if (handle.references == 0 && handle.mappings == 0)
    End(process, index, freed);
}

void DriverObjects::On(const trace::EventContext& at, const trace::HandleRelease& e) {
  OfProcess& process = ProcessOf(at);
  util::FlatMap& handles = process.numbers[kHandles];
  const uint32_t index = handles.Find(e.handle);
  if (index == util::FlatMap::kNone) {
    ++base_.progress.unknown_frees.count;
    return;
  }
  DriverObject& handle = process.objects[index];
  base_.prices.NoteCall(DeviceOf(handle));
  if (handle.references > 0 && --handle.references == 0 && handle.mappings > 0)
    handles.Erase(e.handle);  // the driver may reuse the number
  EndHandleIfUnused(process, index, true);
}

void DriverObjects::On(const trace::EventContext& at, const trace::HandleRetain& e) {
  OfProcess& process = ProcessOf(at);
  util::FlatMap& handles = process.numbers[kHandles];
  uint32_t index = handles.Find(e.handle);
  if (index == util::FlatMap::kNone) {
    // Released, but the mapping at this address keeps it.
    const uint32_t mapping = process.mappings.Find(e.address);
    if (mapping == util::FlatMap::kNone)
      return;
    index = process.objects[mapping].handle;
    process.objects[index].address = e.handle;
    handles.FindOrAdd(e.handle) = index;
  }
  ++process.objects[index].references;
}

// ---- shared by several processes

uint32_t DriverObjects::FindShared(trace::ProcessId process_id, const trace::Share& share) const {
  const OfProcess& process = processes_[process_id.value];
  const uint32_t index = share.address != 0 ? process.numbers[kAddresses].Find(share.address)
                                            : process.numbers[kHandles].Find(share.handle);
  return index == util::FlatMap::kNone ? kNoIndex : index;
}

const DriverObject* DriverObjects::SharedBy(trace::ProcessId process,
                                            const trace::Share& share) const {
  const uint32_t index = FindShared(process, share);
  return index == kNoIndex ? nullptr : &processes_[process.value].objects[index];
}

void DriverObjects::On(const trace::EventContext& at, const trace::Share& e) {
  const uint32_t index = FindShared(at.process, e);
  if (index == kNoIndex)
    return;
  DriverObject& object = ProcessOf(at).objects[index];
  const bool exported = e.kind == format::ShareKind::kExport;
  // An imported descriptor is joined when its size is known.
  if (!CanBeShared(object) ||
      (e.key == 0 && (!exported || e.handle == 0 || object.share != kNoIndex)))
    return;
  JoinShared(at, ProcessOf(at), index, shared_.OfKey(e.key));
}

void DriverObjects::JoinShared(const trace::EventContext& at,
                               OfProcess& process,
                               uint32_t index,
                               uint32_t number) {
  DriverObject& object = process.objects[index];
  const bool is_new = object.share == kNoIndex;
  const SharedMemory::Holder holder{at.process, index};
  object.share = shared_.Join(number, object.share, holder, DeviceOf(object), object.priced);
  if (is_new) {
    shared_.Describe(object.share, {.holder = holder,
                                    .device = DeviceOf(object),
                                    .begin_ns = base_.progress.now_ns,
                                    .size = std::max(object.size, object.priced),
                                    .made = object.priced != 0,
                                    .stack = object.stack,
                                    .native = object.native});
  }
  base_.prices.NoteShare(at);
}

}  // namespace vramscope::resolve
