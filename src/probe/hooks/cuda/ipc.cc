// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/reading.h"
#include "probe/hooks/cuda/record.h"
#include "probe/hooks/cuda/share.h"

// Memory that belongs to another process or to a graphics client and is only mapped here.
namespace vramscope::probe::cuda {
namespace {

template <HookId kId>
CUresult OpenHandle(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned int flags) {
  HookCall<kId> call;
  const CUresult result = call(address, handle, flags);
  if (call.watching() && result == kSuccess) {
    const Place place = CurrentPlace();
    RecordAlloc(kId, call.times(), place,
                {.kind = format::MemoryKind::kIpcImport,
                 .address = *address,
                 .size = SizeAt(*address),
                 .flags = flags});
    RecordShare(kId, call.times(), format::ShareKind::kImport, place.device, *address, 0,
                KeyOf(&handle, sizeof handle));
  }
  return result;
}

template <HookId kId>
CUresult CloseHandle(CUdeviceptr address) {
  HookCall<kId> call;
  const CUresult result = call(address);
  if (call.watching() && result == kSuccess)
    RecordFree(kId, call.times(), format::MemoryKind::kIpcImport, address);
  return result;
}

template <HookId kId>
CUresult ExportHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  HookCall<kId> call;
  const CUresult result = call(handle, address);
  if (call.watching() && result == kSuccess) {
    // The handle is the whole allocation's, whichever of its addresses was given.
    RecordShare(kId, call.times(), format::ShareKind::kExport, CurrentPlace().device,
                BaseOf(address), 0, KeyOf(handle, sizeof *handle));
  }
  return result;
}

// A descriptor that keeps the memory alive for drivers of other devices. Nothing tells when it is
// closed.
template <HookId kId, class... Args>
CUresult ExportRange(void* handle, CUdeviceptr address, Args... args) {
  HookCall<kId> call;
  const CUresult result = call(handle, address, args...);
  if (call.watching() && result == kSuccess) {
    RecordShare(kId, call.times(), format::ShareKind::kExport, CurrentPlace().device,
                BaseOf(address), 0, 0);
  }
  return result;
}

// A buffer is unmapped by cuMemFree. An array is unmapped by cuMipmappedArrayDestroy; its size is
// part of the buffer that was imported.
template <HookId kId, class Out, class Description>
CUresult MapExternal(Out* out, CUexternalMemory memory, const Description* description) {
  HookCall<kId> call;
  const CUresult result = call(out, memory, description);
  if (!call.watching() || result != kSuccess)
    return result;
  uint64_t address = 0, size = 0;
  if constexpr (kId == HookId::cuExternalMemoryGetMappedBuffer) {
    address = *out;
    size = description != nullptr ? description->size : 0;
  } else {
    address = Bits(*out);
  }
  RecordAlloc(kId, call.times(), CurrentPlace(),
              {.kind = format::MemoryKind::kExternal, .address = address, .size = size});
  return result;
}

}  // namespace
}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_IPC 1
#include "probe/hooks/cuda/define_wrappers.h"
