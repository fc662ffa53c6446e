// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/pools.h"
#include "probe/hooks/cuda/record.h"

// Page-locked memory of the machine: the device `host` of the ledger, never part of a GPU.
namespace vramscope::probe::cuda {
namespace {

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

#define VRAMSCOPE_CUDA_IS_HOST_MEMORY 1
#include "probe/hooks/cuda/define_wrappers.h"
