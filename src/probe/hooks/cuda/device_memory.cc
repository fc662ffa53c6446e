// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/graphs.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/managed.h"
#include "probe/hooks/cuda/pools.h"
#include "probe/hooks/cuda/reading.h"
#include "probe/hooks/cuda/record.h"

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

}  // namespace
}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_DEVICE_MEMORY 1
#include "probe/hooks/cuda/define_wrappers.h"
