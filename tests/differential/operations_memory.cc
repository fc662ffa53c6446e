// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <vramscope/annotate.h>

#include <iterator>
#include <utility>

#include "differential/operations.h"

namespace differential {
namespace {

// An invalid address: freed before, inside an allocation, or never returned.
uint64_t WrongAddress(Program& p, Hand& hand, Rng& rng) {
  if (!hand.gone.empty() && rng.OneIn(2)) {
    const uint64_t address = rng.Pick(hand.gone);
    if (!p.MayBeAllocated(address))
      return address;
  }
  if (!hand.linear.empty() && rng.OneIn(2))
    return rng.Pick(hand.linear).address + 8;
  return rng.OneIn(3) ? 0 : 0x7eee00000000 + rng.Below(1 << 20) * 512;
}

// ---- linear memory

}  // namespace

void AllocLinear(Program& p, Hand& hand, Rng& rng) {
  const CUcontext context = p.Current();
  const uint64_t size = rng.Size();
  CUdeviceptr address = 0;
  if (p.Do(p.calls.cuMemAlloc_v2, &address, size) == kSuccess)
    hand.linear.push_back({address, size, context, p.DeviceOf(context), false, false, {}});
}

namespace {

void AllocOld(Program& p, Hand& hand, Rng& rng) {
  const CUcontext context = p.Current();
  const auto size = static_cast<unsigned>(rng.Size());
  CUdeviceptr_v1 address = 0;
  if (p.Do(p.calls.cuMemAlloc, &address, size) == kSuccess)
    hand.linear.push_back({address, size, context, p.DeviceOf(context), true, false, {}});
}

void AllocPitch(Program& p, Hand& hand, Rng& rng) {
  const CUcontext context = p.Current();
  const uint64_t width = 1 + rng.Below(5000), height = rng.Below(rng.OneIn(4) ? 10 : 3000);
  CUdeviceptr address = 0;
  size_t pitch = 0;
  if (p.Do(p.calls.cuMemAllocPitch_v2, &address, &pitch, width, height, 4u) == kSuccess)
    hand.linear.push_back({address, pitch * height, context, p.DeviceOf(context), false, true, {}});
}

}  // namespace

void FreeLinear(Program& p, Hand& hand, Rng& rng) {
  if (hand.linear.empty())
    return;
  Linear memory = Take(hand.linear, rng);
  p.EndBlocks(&memory.region, memory.device);
  const CUresult result = memory.old_version
                              ? p.Do(p.calls.cuMemFree, static_cast<CUdeviceptr_v1>(memory.address))
                          : rng.OneIn(8) ? p.Do(p.calls.cuMemFreeAsync, memory.address, nullptr)
                                         : p.Do(p.calls.cuMemFree_v2, memory.address);
  if (result == kSuccess)
    hand.gone.push_back(memory.address);
  else
    hand.linear.push_back(std::move(memory));
}

namespace {

void FreeWrong(Program& p, Hand& hand, Rng& rng) {
  const uint64_t address = WrongAddress(p, hand, rng);
  switch (rng.Below(7)) {
    case 0:
      p.Do(p.calls.cuMemFreeAsync, address, nullptr);
      return;
    case 1:
      p.Do(p.calls.cuMemFreeHost, const_cast<void*>(At(address)));
      return;
    case 2:
      p.Do(p.calls.cuMemHostUnregister, const_cast<void*>(At(address)));
      return;
    case 3:
      p.Do(p.calls.cuArrayDestroy, reinterpret_cast<CUarray>(address));
      return;
    case 4:
      p.Do(p.calls.cuMemRelease, address);
      return;
    case 5:
      p.Do(p.calls.cuMemUnmap, address, size_t{kPage});
      return;
    default:
      p.Do(p.calls.cuMemFree_v2, address);
  }
}

// ---- host and managed memory

void AllocHost(Program& p, Hand& hand, Rng& rng) {
  using Kind = HostMemory::Kind;
  const CUcontext context = p.Current();
  const uint64_t size = rng.Size();
  void* memory = nullptr;
  CUdeviceptr address = 0;
  switch (rng.Below(4)) {
    case 0:
      if (p.Do(p.calls.cuMemAllocHost_v2, &memory, size) == kSuccess)
        hand.host.push_back({Kind::kPinned, reinterpret_cast<uintptr_t>(memory), context});
      return;
    case 1:
      if (p.Do(p.calls.cuMemHostAlloc, &memory, size, 0u) == kSuccess)
        hand.host.push_back({Kind::kPinned, reinterpret_cast<uintptr_t>(memory), context});
      return;
    case 2:
      if (p.Do(p.calls.cuMemAllocManaged, &address, size, 1u) == kSuccess)
        hand.host.push_back({Kind::kManaged, address, context});
      return;
    default: {
      // Never touched. Addresses may be registered a second time, which is refused.
      static char* const base = static_cast<char*>(
          mmap(nullptr, 64 * kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      char* const at = base + rng.Below(64) * 4096;
      if (p.Do(p.calls.cuMemHostRegister_v2, at, rng.Below(16) * 4096, 0u) == kSuccess)
        hand.host.push_back({Kind::kRegistered, reinterpret_cast<uintptr_t>(at), context});
    }
  }
}

void FreeHost(Program& p, Hand& hand, Rng& rng) {
  if (hand.host.empty())
    return;
  const HostMemory memory = Take(hand.host, rng);
  auto* const pointer = const_cast<void*>(At(memory.address));
  const CUresult result =
      memory.kind == HostMemory::Kind::kPinned       ? p.Do(p.calls.cuMemFreeHost, pointer)
      : memory.kind == HostMemory::Kind::kRegistered ? p.Do(p.calls.cuMemHostUnregister, pointer)
                                                     : p.Do(p.calls.cuMemFree_v2, memory.address);
  if (result != kSuccess)
    hand.host.push_back(memory);
}

// To the device of its context, or to the host, which leaves the driver what it took for it.
void Prefetch(Program& p, Hand& hand, Rng& rng) {
  if (hand.host.empty())
    return;
  const HostMemory& memory = rng.Pick(hand.host);
  // The probe reads the device that is current.
  if (memory.kind != HostMemory::Kind::kManaged ||
      p.DeviceOf(p.Current()) != p.DeviceOf(memory.context))
    return;
  const CUmemLocation to =
      rng.OneIn(3) ? CUmemLocation{2, 0} : CUmemLocation{1, p.DeviceOf(memory.context)};
  p.Do(p.calls.cuMemPrefetchAsync_v2, memory.address, size_t{1}, to, 0u, nullptr);
}

// ---- arrays

void MakeArray(Program& p, Hand& hand, Rng& rng) {
  const CUcontext context = p.Current();
  CUarray array = nullptr;
  CUresult result = kSuccess;
  if (rng.OneIn(2)) {
    const CUDA_ARRAY_DESCRIPTOR shape{
        .Width = 1 + rng.Below(4000), .Height = rng.Below(2000), .Format = 0x20, .NumChannels = 1};
    result = p.Do(p.calls.cuArrayCreate_v2, &array, &shape);
  } else {
    const CUDA_ARRAY3D_DESCRIPTOR shape{.Width = 1 + rng.Below(400),
                                        .Height = rng.Below(300),
                                        .Depth = rng.Below(20),
                                        .Format = 0x10,
                                        .NumChannels = 1u << rng.Below(3),
                                        .Flags = 0};
    result = p.Do(p.calls.cuArray3DCreate_v2, &array, &shape);
  }
  if (result == kSuccess)
    hand.arrays.push_back({array, context});
}

void EndArray(Program& p, Hand& hand, Rng& rng) {
  if (hand.arrays.empty())
    return;
  const Array array = Take(hand.arrays, rng);
  if (p.Do(p.calls.cuArrayDestroy, array.handle) != kSuccess)
    hand.arrays.push_back(array);
}

// ---- physical memory and addresses apart

}  // namespace

void MakePhysical(Program& p, Hand& hand, Rng& rng) {
  const auto device = static_cast<int>(rng.Below(static_cast<uint64_t>(p.devices)));
  CUmemAllocationProp properties{};
  properties.type = 1;
  properties.location = {kLocationDevice, rng.OneIn(30) ? 63 : device};
  const uint64_t size = rng.OneIn(20) ? rng.Size() : (1 + rng.Below(16)) * kPage;
  CUmemGenericAllocationHandle handle = 0;
  if (p.Do(p.calls.cuMemCreate, &handle, size, &properties, 0ull) == kSuccess)
    hand.physical.push_back({handle, size, device});
}

namespace {

void Release(Program& p, Hand& hand, Rng& rng) {
  if (hand.physical.empty())
    return;
  const Physical physical = Take(hand.physical, rng);
  if (p.Do(p.calls.cuMemRelease, physical.handle) != kSuccess)
    hand.physical.push_back(physical);
}

void Reserve(Program& p, Hand& hand, Rng& rng) {
  const uint64_t size = (1 + rng.Below(64)) * kPage;
  CUdeviceptr address = 0;
  if (p.Do(p.calls.cuMemAddressReserve, &address, size, size_t{0}, CUdeviceptr{0}, 0ull) ==
      kSuccess)
    hand.reservations.push_back({.address = address, .size = size, .device = -1});
}

uint64_t EndOfMappings(const Reservation& range) {
  return range.mappings.empty() ? range.address
                                : range.mappings.rbegin()->first + range.mappings.rbegin()->second;
}

// What is mapped where is known before the call's truth is written.
void MapAt(Program& p, Reservation& range, uint64_t at, const Physical& physical) {
  const CUresult result =
      p.calls.cuMemMap.function(at, physical.size, size_t{0}, physical.handle, 0ull);
  if (result == kSuccess) {
    range.has_alias =
        p.NoteMapped(physical.handle, at, physical.size, physical.device) || range.has_alias;
    range.mappings[at] = physical.size;
    range.device = physical.device;
  }
  p.After(p.calls.cuMemMap.name, result);
}

// Whole mappings, one behind the other.
bool UnmapAt(Program& p, Reservation& range, uint64_t begin, uint64_t size) {
  const CUresult result = p.calls.cuMemUnmap.function(begin, size);
  if (result == kSuccess) {
    auto mapping = range.mappings.find(begin);
    while (mapping != range.mappings.end() && mapping->first < begin + size) {
      p.NoteUnmapped(mapping->first);
      mapping = range.mappings.erase(mapping);
    }
  }
  p.After(p.calls.cuMemUnmap.name, result);
  return result == kSuccess;
}

void Map(Program& p, Hand& hand, Rng& rng) {
  if (hand.physical.empty() || hand.reservations.empty())
    return;
  const Physical& physical = rng.Pick(hand.physical);
  Reservation& range = rng.Pick(hand.reservations);
  if (!range.mappings.empty() && range.device != physical.device)
    return;
  // Behind the others, at the begin again, or where something may be mapped already.
  const uint64_t at = rng.OneIn(4) ? range.address : EndOfMappings(range);
  const auto next = range.mappings.lower_bound(at);
  if (at + physical.size > range.address + range.size ||
      (next != range.mappings.end() && next->first != at && next->first < at + physical.size))
    return;
  MapAt(p, range, at, physical);
}

void Unmap(Program& p, Hand& hand, Rng& rng) {
  if (hand.reservations.empty())
    return;
  Reservation& range = rng.Pick(hand.reservations);
  if (range.mappings.empty())
    return;
  p.EndBlocks(&range.region, range.device);
  if (rng.OneIn(3)) {  // several at once, without a hole
    const uint64_t begin = range.mappings.begin()->first;
    uint64_t size = 0;
    for (const auto& [address, bytes] : range.mappings)
      size += address == begin + size ? bytes : 0;
    UnmapAt(p, range, begin, size);
    return;
  }
  auto mapping = range.mappings.begin();
  std::advance(mapping, rng.Below(range.mappings.size()));
  UnmapAt(p, range, mapping->first, mapping->second);
}

// Below live blocks, as engines do that sleep; not always all of it.
void Sleep(Program& p, Hand& hand, Rng& rng) {
  if (hand.reservations.empty())
    return;
  Reservation& range = rng.Pick(hand.reservations);
  while (!range.region.blocks.empty() && !range.mappings.empty()) {
    const auto [begin, size] = *range.mappings.begin();
    if (!UnmapAt(p, range, begin, size) || rng.OneIn(3))
      return;
  }
}

// Memory comes to where it is missing first: other memory, or what is mapped elsewhere, too.
void Wake(Program& p, Hand& hand, Rng& rng) {
  if (hand.reservations.empty() || hand.physical.empty())
    return;
  Reservation& range = rng.Pick(hand.reservations);
  const Physical& physical = rng.Pick(hand.physical);
  uint64_t at = range.address;
  for (const auto& [address, size] : range.mappings) {
    if (address >= at + physical.size)
      break;
    at = address + size;
  }
  if (physical.device == range.device && at + physical.size <= range.address + range.size)
    MapAt(p, range, at, physical);
}

// Where memory is mapped and where it is not.
void CutAnywhere(Program& p, Hand& hand, Rng& rng) {
  if (hand.reservations.empty())
    return;
  Reservation& range = rng.Pick(hand.reservations);
  const auto& blocks = range.region.blocks;
  const uint64_t at =
      blocks.empty() ? range.address : blocks.rbegin()->first + blocks.rbegin()->second;
  const auto next = range.mappings.upper_bound(at);
  const bool is_mapped =
      next != range.mappings.begin() && at < std::prev(next)->first + std::prev(next)->second;
  // The program's own pool asks the driver whose memory it is.
  const bool knows_device =
      range.cut_device == range.device && range.region.by == Region::By::kPyTorch;
  if ((is_mapped || knows_device) &&
      p.CutBlock(rng, &range.region, range.address, range.address + range.size, range.device, true))
    range.cut_device = range.device;
}

// A part of an engine: addresses, one handle below all of them, blocks. False after an error.
bool BeginPart(Program& p, Rng& rng, int device, Reservation* range, Physical* physical) {
  const uint64_t size = (1 + rng.Below(8)) * kPage;
  CUdeviceptr address = 0;
  if (p.Do(p.calls.cuMemAddressReserve, &address, size, size_t{0}, CUdeviceptr{0}, 0ull) !=
      kSuccess)
    return false;
  *range = {.address = address, .size = size, .device = device};
  CUmemAllocationProp properties{};
  properties.type = 1;
  properties.location = {kLocationDevice, device};
  *physical = {0, size, device};
  if (p.Do(p.calls.cuMemCreate, &physical->handle, size, &properties, 0ull) != kSuccess)
    return false;
  MapAt(p, *range, address, *physical);
  if (range->mappings.empty())
    return false;
  range->region.by = Region::By::kPyTorch;
  for (uint64_t blocks = 1 + rng.Below(5); blocks != 0; --blocks) {
    if (p.CutBlock(rng, &range->region, address, address + size, device, true))
      range->cut_device = device;
  }
  return true;
}

// Loads weights, makes a cache, sleeps and wakes some times: in part, with other memory in between,
// and not at all if the driver refuses. What it ends with stays: asleep, awake, or half of each.
void Engine(Program& p, Hand& hand, Rng& rng) {
  const auto device = static_cast<int>(rng.Below(static_cast<uint64_t>(p.devices)));
  Reservation parts[2] = {};
  Physical handles[2] = {};
  bool begun[2] = {};
  const char* const phases[] = {"phase:load", "phase:kv cache"};
  for (int i = 0; i < 2; ++i) {
    vramscope_annotate_mark(phases[i]);
    begun[i] = BeginPart(p, rng, device, &parts[i], &handles[i]);
  }
  CUmemAllocationProp properties{};
  properties.type = 1;
  properties.location = {kLocationDevice, device};
  for (uint64_t rounds = 1 + rng.Below(3); rounds != 0; --rounds) {
    vramscope_annotate_mark("phase:sleep");
    for (int i = 0; i < 2; ++i) {
      if (!begun[i] || handles[i].handle == 0 || rng.OneIn(6) ||
          !UnmapAt(p, parts[i], parts[i].address, parts[i].size))
        continue;
      if (p.Do(p.calls.cuMemRelease, handles[i].handle) == kSuccess)
        handles[i].handle = 0;
    }
    if (rng.OneIn(2))
      AllocLinear(p, hand, rng);
    vramscope_annotate_mark("phase:serve");
    for (int i = 0; i < 2; ++i) {
      if (!begun[i] || handles[i].handle != 0 || rng.OneIn(5))
        continue;
      if (p.Do(p.calls.cuMemCreate, &handles[i].handle, parts[i].size, &properties, 0ull) !=
          kSuccess)
        handles[i].handle = 0;
      else
        MapAt(p, parts[i], parts[i].address, handles[i]);
    }
  }
  vramscope_annotate_mark("phase:");
  for (int i = 0; i < 2; ++i) {
    if (parts[i].address != 0)
      hand.reservations.push_back(std::move(parts[i]));
    if (handles[i].handle != 0)
      hand.physical.push_back(handles[i]);
  }
}

void Retain(Program& p, Hand& hand, Rng& rng) {
  if (hand.reservations.empty())
    return;
  Reservation& range = rng.Pick(hand.reservations);
  if (range.mappings.empty())
    return;
  auto mapping = range.mappings.begin();
  std::advance(mapping, rng.Below(range.mappings.size()));
  CUmemGenericAllocationHandle handle = 0;
  if (p.Do(p.calls.cuMemRetainAllocationHandle, &handle, const_cast<void*>(At(mapping->first))) ==
      kSuccess)
    hand.physical.push_back({handle, mapping->second, range.device});
}

void Unreserve(Program& p, Hand& hand, Rng& rng) {
  if (hand.reservations.empty())
    return;
  Reservation range = Take(hand.reservations, rng);
  if (range.mappings.empty())
    p.EndBlocks(&range.region, range.device);
  if (!range.mappings.empty() ||
      p.Do(p.calls.cuMemAddressFree, range.address, range.size) != kSuccess)
    hand.reservations.push_back(std::move(range));
}

}  // namespace

std::vector<Operation> MemoryOperations() {
  return {
      {"alloc linear", 60, true, AllocLinear},
      {"alloc old version", 6, true, AllocOld},
      {"alloc pitch", 10, true, AllocPitch},
      {"free linear", 60, true, FreeLinear},
      {"free wrong", 12, true, FreeWrong},
      {"alloc host", 15, true, AllocHost},
      {"free host", 12, true, FreeHost},
      {"prefetch", 8, false, Prefetch},
      {"make array", 8, false, MakeArray},
      {"end array", 8, false, EndArray},
      {"make physical", 16, true, MakePhysical},
      {"release", 14, true, Release},
      {"reserve", 8, true, Reserve},
      {"map", 24, true, Map},
      {"unmap", 14, true, Unmap},
      {"retain", 6, true, Retain},
      {"unreserve", 5, true, Unreserve},
      {"sleep", 12, true, Sleep},
      {"wake", 16, true, Wake},
      {"cut anywhere", 24, true, CutAnywhere},
      {"engine", 6, true, Engine},
  };
}

}  // namespace differential
