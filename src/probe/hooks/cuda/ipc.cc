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

template <HookId kId, class Out, class... Args>
CUresult MapExternal(uint64_t size, Out* out, Args... args) {
  HookCall<kId> call;
  const CUresult result = call(out, args...);
  if (!call.watching() || result != kSuccess)
    return result;
  uint64_t address = 0;
  if constexpr (sizeof(Out) == sizeof(CUdeviceptr) && requires { uint64_t{*out}; })
    address = *out;
  else
    address = Bits(*out);
  RecordAlloc(kId, call.times(), CurrentPlace(),
              {.kind = format::MemoryKind::kExternal, .address = address, .size = size});
  return result;
}

}  // namespace

VRAMSCOPE_CUDA_WRAPPER(cuIpcGetMemHandle)(CUipcMemHandle* handle, CUdeviceptr address) {
  HookCall<HookId::cuIpcGetMemHandle> call;
  const CUresult result = call(handle, address);
  if (call.watching() && result == kSuccess) {
    // The handle is the whole allocation's, whichever of its addresses was given.
    RecordShare(HookId::cuIpcGetMemHandle, call.times(), format::ShareKind::kExport,
                CurrentPlace().device, BaseOf(address), 0, KeyOf(handle, sizeof *handle));
  }
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuIpcOpenMemHandle)
(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return OpenHandle<HookId::cuIpcOpenMemHandle>(address, handle, flags);
}

VRAMSCOPE_CUDA_WRAPPER(cuIpcOpenMemHandle_v2)
(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return OpenHandle<HookId::cuIpcOpenMemHandle_v2>(address, handle, flags);
}

VRAMSCOPE_CUDA_WRAPPER(cuIpcCloseMemHandle)(CUdeviceptr address) {
  HookCall<HookId::cuIpcCloseMemHandle> call;
  const CUresult result = call(address);
  if (call.watching() && result == kSuccess) {
    RecordFree(HookId::cuIpcCloseMemHandle, call.times(), format::MemoryKind::kIpcImport, address);
  }
  return result;
}

// A descriptor that keeps the memory alive for drivers of other devices. Nothing tells when it is
// closed.
VRAMSCOPE_CUDA_WRAPPER(cuMemGetHandleForAddressRange)
(void* handle,
 CUdeviceptr address,
 size_t size,
 CUmemRangeHandleType type,
 unsigned long long flags) {
  HookCall<HookId::cuMemGetHandleForAddressRange> call;
  const CUresult result = call(handle, address, size, type, flags);
  if (call.watching() && result == kSuccess) {
    RecordShare(HookId::cuMemGetHandleForAddressRange, call.times(), format::ShareKind::kExport,
                CurrentPlace().device, BaseOf(address), 0, 0);
  }
  return result;
}

// The memory stays its maker's; what importing takes besides shows in the readings.
VRAMSCOPE_CUDA_WRAPPER(cuImportExternalMemory)
(CUexternalMemory* memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* description) {
  return CallEstimated<HookId::cuImportExternalMemory>(
      format::ImplicitKind::kOther, WriteWhen::kMoved, [=] { return Subject{}; }, memory,
      description);
}

VRAMSCOPE_CUDA_WRAPPER(cuDestroyExternalMemory)(CUexternalMemory memory) {
  return CallEstimated<HookId::cuDestroyExternalMemory>(
      format::ImplicitKind::kOther, WriteWhen::kMoved, [=] { return Subject{}; }, memory);
}

// Unmapped by cuMemFree.
VRAMSCOPE_CUDA_WRAPPER(cuExternalMemoryGetMappedBuffer)
(CUdeviceptr* address,
 CUexternalMemory memory,
 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* description) {
  return MapExternal<HookId::cuExternalMemoryGetMappedBuffer>(
      description != nullptr ? description->size : 0, address, memory, description);
}

// Unmapped by cuMipmappedArrayDestroy. Its size is part of the buffer that was imported.
VRAMSCOPE_CUDA_WRAPPER(cuExternalMemoryGetMappedMipmappedArray)
(CUmipmappedArray* array,
 CUexternalMemory memory,
 const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* description) {
  return MapExternal<HookId::cuExternalMemoryGetMappedMipmappedArray>(0, array, memory,
                                                                      description);
}

}  // namespace vramscope::probe::cuda
