// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/reading.h"
#include "probe/hooks/cuda/record.h"

// Memory that belongs to another process or to a graphics client and is only mapped here.
namespace vramscope::probe::cuda {
namespace {

uint64_t SizeAt(CUdeviceptr address) {
  CUdeviceptr base = 0;
  size_t size = 0;
  auto* const ask = DriverCall<CallId::cuMemGetAddressRange_v2>();
  return ask != nullptr && ask(&base, &size, address) == kSuccess ? size : 0;
}

template <HookId kId>
CUresult OpenHandle(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned int flags) {
  HookCall<kId> call;
  const CUresult result = call(address, handle, flags);
  if (call.watching() && result == kSuccess) {
    RecordAlloc(kId, call.times(), CurrentPlace(),
                {.kind = format::MemoryKind::kIpcImport,
                 .address = *address,
                 .size = SizeAt(*address),
                 .flags = flags});
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
