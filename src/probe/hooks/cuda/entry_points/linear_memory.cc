// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "format/enums.h"
#include "probe/hooks/cuda/entry_points/pools.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/session/session.h"

namespace vramscope::probe::cuda {
namespace {

template <HookId kId, class Address, class Size>
CUresult AllocLinear(Address* address, Size size) {
  HookCall<kId> call;
  if (!call.watching())
    return call(address, size);
  const Place place = CurrentPlace();
  CatchUpReading(place);
  const CUresult result = call(address, size);
  if (result == kSuccess) {
    TakeGraphAddress(*address);
    RecordAlloc(kId, call.times(), place, {.address = *address, .size = size});
  } else {
    RecordFailure(kId, call.times(), place, result, size);
  }
  return result;
}

template <HookId kId, class Address, class Size>
CUresult AllocPitch(Address* address,
                    Size* pitch,
                    Size width,
                    Size height,
                    unsigned int element_bytes) {
  HookCall<kId> call;
  if (!call.watching())
    return call(address, pitch, width, height, element_bytes);
  const Place place = CurrentPlace();
  CatchUpReading(place);
  const CUresult result = call(address, pitch, width, height, element_bytes);
  const uint64_t size = static_cast<uint64_t>(width) * height;
  if (result == kSuccess) {
    RecordAlloc(kId, call.times(), place,
                {.kind = format::MemoryKind::kPitched,
                 .address = *address,
                 .size = size,
                 .actual = static_cast<uint64_t>(*pitch) * height});
  } else {
    RecordFailure(kId, call.times(), place, result, size);
  }
  return result;
}

template <HookId kId>
CUresult AllocManaged(CUdeviceptr* address, size_t size, unsigned int flags) {
  HookCall<kId> call;
  if (!call.watching())
    return call(address, size, flags);
  const Place place = CurrentPlace();
  CatchUpReading(place);
  const CUresult result = call(address, size, flags);
  if (result == kSuccess) {
    NoteManagedAlloc();
    RecordAlloc(
        kId, call.times(), place,
        {.kind = format::MemoryKind::kManaged, .address = *address, .size = size, .flags = flags});
  } else {
    RecordFailure(kId, call.times(), place, result, size);
  }
  return result;
}

template <HookId kId, class Address>
CUresult FreeLinear(Address address) {
  HookCall<kId> call;
  if (call.watching() && g_flags.late.load(std::memory_order_relaxed))
    RecordPriorAllocation(address);
  const ShrinkingCall shrinking;
  const CUresult result = call(address);
  if (call.watching() && result == kSuccess) {
    if (TakeGraphAddress(address))
      ReadGraphPool(CurrentPlace().device);
    else
      RecordFree(kId, call.times(), format::MemoryKind::kDevice, address);
    ReadPoolsAfterSynchronisation();
  }
  return result;
}

// ---- where the pages of managed memory are
// It only begins to move pages: the next call that synchronises is read too. The free memory of
// another device can only be read once that device is current.
template <HookId kId, class... Args>
CUresult MovePages(int device, Args... args) {
  const CUresult result = CallEstimated<kId>(
      format::ImplicitKind::kManaged, WriteWhen::kMoved, [] { return Subject{}; }, args...);
  if (result == kSuccess && device >= 0 && IsRecording() && CurrentPlace().device != device)
    RequestReading(device);
  return result;
}

int GetDevice(CUdevice device) {
  return device;
}

int GetDevice(const CUmemLocation& location) {
  return location.type == kLocationDevice ? location.id : format::kNoDevice;
}

template <HookId kId, class Target, class... Args>
CUresult PrefetchPages(CUdeviceptr address, size_t bytes, Target to, Args... args) {
  return MovePages<kId>(GetDevice(to), address, bytes, to, args...);
}

template <HookId kId, class Target>
CUresult AdvisePages(CUdeviceptr address, size_t bytes, CUmem_advise advice, Target where) {
  return MovePages<kId>(GetDevice(where), address, bytes, advice, where);
}

// ---- page-locked memory of the machine: the device `host` of the ledger, never part of a GPU
template <HookId kId, class Size, class... Flags>
CUresult AllocHost(void** memory, Size size, Flags... flags) {
  HookCall<kId> call;
  const CUresult result = call(memory, size, flags...);
  if (!call.watching())
    return result;
  if (result == kSuccess) {
    RecordAlloc(kId, call.times(), CurrentPlace(),
                {.kind = format::MemoryKind::kHostPinned,
                 .address = Bits(*memory),
                 .size = size,
                 .flags = (uint64_t{0} | ... | flags)});
  } else {
    RecordFailure(kId, call.times(), {.device = format::kHostDevice}, result, size);
  }
  return result;
}

template <HookId kId>
CUresult RegisterHost(void* memory, size_t size, unsigned int flags) {
  HookCall<kId> call;
  const CUresult result = call(memory, size, flags);
  if (call.watching() && result == kSuccess) {
    RecordAlloc(kId, call.times(), CurrentPlace(),
                {.kind = format::MemoryKind::kHostRegistered,
                 .address = Bits(memory),
                 .size = size,
                 .flags = flags});
  }
  return result;
}

template <HookId kId>
CUresult FreeHost(void* memory) {
  constexpr auto kKind = kId == HookId::cuMemFreeHost ? format::MemoryKind::kHostPinned
                                                      : format::MemoryKind::kHostRegistered;
  HookCall<kId> call;
  const ShrinkingCall shrinking;
  const CUresult result = call(memory);
  if (call.watching() && result == kSuccess) {
    RecordFree(kId, call.times(), kKind, Bits(memory));
    ReadPoolsAfterSynchronisation();
  }
  return result;
}

}  // namespace
}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_LINEAR_MEMORY 1
#include "probe/hooks/cuda/define_wrappers.h"
#undef VRAMSCOPE_CUDA_IS_LINEAR_MEMORY
