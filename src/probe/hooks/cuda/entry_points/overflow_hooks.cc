// SPDX-License-Identifier: Apache-2.0
// The wrappers that replace the usual ones if --overflow is on.
#include <cstring>

#include "format/enums.h"
#include "probe/hooks/cuda/entry_points/pools.h"
#include "probe/hooks/cuda/state/overflow.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/hooks/cuda/state/requester.h"

namespace vramscope::probe::cuda {
namespace {

// Memory that the driver allocates on its own (code that is loaded at its first launch, streams,
// page tables) cannot be in host memory, and a program that lacks it fails without a fault of its
// own. So a device counts as full while it has this much left: a 64th of it, 256 MiB at most.
constexpr uint64_t kMostLeft = uint64_t{256} << 20;
constexpr uint64_t kLeftShare = 64;
// Smaller requests share pages that are there already.
constexpr size_t kLeastThatCounts = size_t{1} << 20;

// The size that this thread's PyTorch allocator was last refused; 0: none. It asks again for as
// much once it has given back what it had cached.
constinit VRAMSCOPE_TLS uint64_t t_refused_bytes = 0;

// Whether the driver has the memory, and would have too little left for itself.
bool WouldFillUp(const Place& place, size_t size) {
  if (size < kLeastThatCounts)
    return false;
  const FreeMemory memory = ReadFreeMemory(place);
  const uint64_t share = memory.total / kLeftShare;
  const uint64_t left = share < kMostLeft ? share : kMostLeft;
  return memory.known && memory.free >= size && memory.free - size < left;
}

// Whether the driver's refusal goes to PyTorch, which has not yet given its cache back. Only a real
// one does: where PyTorch fills a pool of its own it does not ask again, and raises.
bool IsToAskAgain(Requester requester, size_t size) {
  if (requester != Requester::kPyTorch || t_refused_bytes == size)
    return false;
  t_refused_bytes = size;
  return true;
}

// False if there is none.
bool TakeFromHost(const Place& place, uint64_t begin, CUdeviceptr* address, size_t size) {
  uint64_t taken = 0;
  const CUdeviceptr host = TakeHostMemory(place, size, &taken);
  if (host == 0)
    return false;
  t_refused_bytes = 0;
  *address = host;
  RecordAlloc(
      HookId::cuMemAlloc_v2, {begin, Now()}, place,
      {.kind = format::MemoryKind::kOverflow, .address = host, .size = size, .actual = taken});
  return true;
}

CUresult AllocOverflow(CUdeviceptr* address, size_t size) {
  HookCall<HookId::cuMemAlloc_v2> call;
  if (!call.watching())
    return call(address, size);
  const Place place = CurrentPlace();
  CatchUpReading(place);
  const uint64_t begin = Now();
  const bool fills_up = WouldFillUp(place, size);
  Requester requester = fills_up ? FindRequester() : Requester::kProgram;
  if (fills_up && (requester == Requester::kProgram || requester == Requester::kPyTorch)) {
    t_cuda_call_begin = begin;
    if (TakeFromHost(place, begin, address, size))
      return kSuccess;
  }
  const CUresult result = call(address, size);
  if (result == kSuccess) {
    t_refused_bytes = 0;
    TakeGraphAddress(*address);
    RecordAlloc(HookId::cuMemAlloc_v2, call.times(), place, {.address = *address, .size = size});
    return result;
  }
  Alarm alarm = Alarm::kYes;
  if (result == kOutOfMemoryError && !IsAnyStreamCapturing()) {
    requester = FindRequester();
    if (requester != Requester::kCommunicator) {
      if (IsToAskAgain(requester, size))
        alarm = Alarm::kNot;  // not for good
      else if (TakeFromHost(place, begin, address, size))
        return kSuccess;
      else
        t_refused_bytes = 0;
    }
  }
  RecordFailure(HookId::cuMemAlloc_v2, call.times(), place, result, size, alarm);
  return result;
}

CUresult FreeOverflow(CUdeviceptr address) {
  if (!IsHeld(address))
    return UsualWrapper<HookId::cuMemFree_v2>()(address);
  const HookCall<HookId::cuMemFree_v2> call;
  const ShrinkingCall shrinking;
  CallTimes times{.begin = t_cuda_call_begin = Now(), .end = 0};
  const CUresult result = ReleaseHeld(address);
  times.end = Now();
  if (call.watching() && result == kSuccess) {
    RecordFree(HookId::cuMemFree_v2, times, format::MemoryKind::kOverflow, address);
    ReadPoolsAfterSynchronisation();
  }
  return result;
}

// The program gets the same attributes for an address of ours as for one of cuMemAlloc's. False
// if that makes no difference.
bool Describe(CUpointer_attribute attribute,
              CUdeviceptr address,
              const HeldRange& range,
              void* data) {
  const auto say = [data](auto value) {
    std::memcpy(data, &value, sizeof value);
    return true;
  };
  switch (attribute) {
    case kPointerContext:
      return say(range.context);
    case kPointerMemoryType:
      return say(kMemoryTypeDevice);
    case kPointerOnDevice:
      return say(address);
    case kPointerOnHost:
      return say(uint64_t{0});
    case kPointerDevice:
      return say(int{range.device});
    case kPointerRangeStart:
      return say(range.begin);
    case kPointerRangeSize:
      return say(range.asked_bytes);
    default:
      return false;
  }
}

CUresult PointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const CUresult result = DriverCall<CallId::cuPointerGetAttribute>()(data, attribute, address);
  HeldRange range;
  if (data == nullptr || !FindHeld(address, &range) || !Describe(attribute, address, range, data))
    return result;
  return attribute == kPointerOnHost ? kInvalidValueError : kSuccess;
}

CUresult PointerGetAttributes(unsigned int count,
                              CUpointer_attribute* attributes,
                              void** data,
                              CUdeviceptr address) {
  const CUresult result =
      DriverCall<CallId::cuPointerGetAttributes>()(count, attributes, data, address);
  HeldRange range;
  if (result != kSuccess || !FindHeld(address, &range))
    return result;
  for (unsigned int i = 0; i < count; ++i) {
    if (data[i] != nullptr)
      Describe(attributes[i], address, range, data[i]);
  }
  return result;
}

CUresult GetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  HeldRange range;
  if (!FindHeld(address, &range))
    return DriverCall<CallId::cuMemGetAddressRange_v2>()(base, size, address);
  if (base != nullptr)
    *base = range.begin;
  if (size != nullptr)
    *size = range.asked_bytes;
  return kSuccess;
}

}  // namespace

const OverflowWrapper kOverflowWrappers[] = {
    {"cuMemAlloc_v2", reinterpret_cast<void*>(&AllocOverflow)},
    {"cuMemFree_v2", reinterpret_cast<void*>(&FreeOverflow)},
    {"cuPointerGetAttribute", reinterpret_cast<void*>(&PointerGetAttribute)},
    {"cuPointerGetAttributes", reinterpret_cast<void*>(&PointerGetAttributes)},
    {"cuMemGetAddressRange_v2", reinterpret_cast<void*>(&GetAddressRange)},
};
const size_t kOverflowWrapperCount = sizeof kOverflowWrappers / sizeof kOverflowWrappers[0];

}  // namespace vramscope::probe::cuda
