// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "format/records.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/hooks/cuda/state/requester.h"
#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

// Physical memory lives from cuMemCreate until its last reference and its last mapping are gone:
// handles and mappings are recorded each for itself, the reader counts.
namespace vramscope::probe::cuda {
namespace {

int32_t GetDevice(const CUmemAllocationProp& properties) {
  return properties.location.type == kLocationDevice ? properties.location.id : format::kHostDevice;
}

// Only handles that are passed on by their content can be told apart: a descriptor's number means
// nothing in another process.
uint64_t MakeFabricKey(const void* os_handle, CUmemAllocationHandleType type) {
  return type == kHandleFabric && os_handle != nullptr
             ? MakeShareKey(os_handle, sizeof(CUmemFabricHandle))
             : 0;
}

void RecordHandle(HookId api,
                  const CallTimes& times,
                  int32_t device,
                  uint64_t handle,
                  uint64_t size,
                  bool imported) {
  NoteDevice(device);
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  NoteExplicitAlloc(device);
  scope->Append(format::HandleCreate{.begin = times.begin,
                                     .end = times.end,
                                     .api = scope->InternLiteral(HookName(api)),
                                     .device = device,
                                     .handle = handle,
                                     .size = size,
                                     .imported = imported ? 1u : 0u,
                                     .stack = CapturePythonStack(*scope),
                                     .native = CaptureNativeStack(*scope)});
}

template <class Record>
void Write(const Record& record) {
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  NoteExplicitFree();
  scope->Append(record);
}

template <HookId kId>
CUresult CreateMemory(CUmemGenericAllocationHandle* handle,
                      size_t size,
                      const CUmemAllocationProp* properties,
                      unsigned long long flags) {
  HookCall<kId> call;
  if (!call.watching())
    return call(handle, size, properties, flags);
  const Place place = CurrentPlace();
  CatchUpReading(place);
  const CUresult result = call(handle, size, properties, flags);
  if (result == kSuccess)
    RecordHandle(kId, call.times(), GetDevice(*properties), *handle, size, false);
  else
    RecordFailure(kId, call.times(), place, result, size);
  return result;
}

template <HookId kId>
CUresult ReleaseHandle(CUmemGenericAllocationHandle handle) {
  HookCall<kId> call;
  const CUresult result = call(handle);
  if (!call.watching() || result != kSuccess)
    return result;
  RecordScope scope(Want::kAlways);
  if (scope) {
    NoteExplicitFree();
    scope->Append(format::HandleRelease{.begin = call.times().begin,
                                        .end = call.times().end,
                                        .api = scope->InternLiteral(HookName(kId)),
                                        .handle = handle});
  }
  return result;
}

template <HookId kId>
CUresult RetainHandle(CUmemGenericAllocationHandle* handle, void* address) {
  HookCall<kId> call;
  const CUresult result = call(handle, address);
  if (!call.watching() || result != kSuccess)
    return result;
  RecordScope scope(Want::kAlways);
  if (scope) {
    scope->Append(format::HandleRetain{.begin = call.times().begin,
                                       .end = call.times().end,
                                       .api = scope->InternLiteral(HookName(kId)),
                                       .handle = *handle,
                                       .address = Bits(address)});
  }
  return result;
}

template <HookId kId>
CUresult ImportHandle(CUmemGenericAllocationHandle* handle,
                      void* os_handle,
                      CUmemAllocationHandleType type) {
  HookCall<kId> call;
  const CUresult result = call(handle, os_handle, type);
  if (!call.watching() || result != kSuccess)
    return result;
  CUmemAllocationProp properties{};
  auto* const ask = DriverCall<CallId::cuMemGetAllocationPropertiesFromHandle>();
  const bool known = ask != nullptr && ask(&properties, *handle) == kSuccess;
  const int32_t device = known ? GetDevice(properties) : CurrentPlace().device;
  // Its size shows when it is mapped.
  RecordHandle(kId, call.times(), device, *handle, 0, true);
  RecordShare(kId, call.times(), format::ShareKind::kImport, device, 0, *handle,
              MakeFabricKey(os_handle, type));
  return result;
}

template <HookId kId>
CUresult ExportHandle(void* os_handle,
                      CUmemGenericAllocationHandle handle,
                      CUmemAllocationHandleType type,
                      unsigned long long flags) {
  HookCall<kId> call;
  const CUresult result = call(os_handle, handle, type, flags);
  if (call.watching() && result == kSuccess) {
    RecordShare(kId, call.times(), format::ShareKind::kExport, CurrentPlace().device, 0, handle,
                MakeFabricKey(os_handle, type));
  }
  return result;
}

template <HookId kId>
CUresult MapMemory(CUdeviceptr address,
                   size_t size,
                   size_t offset,
                   CUmemGenericAllocationHandle handle,
                   unsigned long long flags) {
  HookCall<kId> call;
  const CUresult result = call(address, size, offset, handle, flags);
  if (!call.watching() || result != kSuccess)
    return result;
  const char* const region = FindRegionTag();
  RecordScope scope(Want::kAlways);
  if (scope) {
    scope->Append(format::Map{.begin = call.times().begin,
                              .end = call.times().end,
                              .address = address,
                              .size = size,
                              .offset = offset,
                              .handle = handle,
                              .stack = CapturePythonStack(*scope),
                              .native = CaptureNativeStack(*scope)});
    if (region != nullptr && *region != '\0') {
      scope->Append(format::Name{.time = call.times().end,
                                 .address = address,
                                 .size = size,
                                 .device = format::kNoDevice,
                                 .kind = static_cast<uint64_t>(format::NameKind::kRegion),
                                 .name = scope->InternString(region, std::strlen(region))});
    }
  }
  return result;
}

// Ends a mapping or a reservation.
template <HookId kId, class Record>
CUresult EndRange(CUdeviceptr address, size_t size) {
  HookCall<kId> call;
  const CUresult result = call(address, size);
  if (call.watching() && result == kSuccess) {
    Write(Record{
        .begin = call.times().begin, .end = call.times().end, .address = address, .size = size});
  }
  return result;
}

template <HookId kId>
CUresult UnmapMemory(CUdeviceptr address, size_t size) {
  return EndRange<kId, format::Unmap>(address, size);
}

template <HookId kId>
CUresult FreeAddresses(CUdeviceptr address, size_t size) {
  return EndRange<kId, format::Unreserve>(address, size);
}

template <HookId kId, class... Args>
CUresult ReserveAddresses(CUdeviceptr* address, size_t size, Args... args) {
  HookCall<kId> call;
  const CUresult result = call(address, size, args...);
  if (call.watching() && result == kSuccess) {
    Write(format::Reserve{
        .begin = call.times().begin, .end = call.times().end, .address = *address, .size = size});
  }
  return result;
}

// A multicast object takes page tables and little else, but nothing says how much. It is a handle
// without memory of its own.
template <HookId kId>
CUresult CreateMulticast(CUmemGenericAllocationHandle* handle,
                         const CUmulticastObjectProp* properties) {
  HookCall<kId> call;
  if (!call.watching())
    return call(handle, properties);
  const Place place = CurrentPlace();
  const FreeMemory before = BeginEstimate(place);
  const CUresult result = call(handle, properties);
  if (result == kSuccess)
    RecordHandle(kId, call.times(), place.device, *handle, 0, false);
  FinishEstimate(kId, call.times(), result, format::ImplicitKind::kOther, WriteWhen::kMoved, place,
                 before, {.detail = result == kSuccess ? *handle : uint64_t{0}});
  return result;
}

}  // namespace
}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_VMM 1
#include "probe/hooks/cuda/define_wrappers.h"
#undef VRAMSCOPE_CUDA_IS_VMM
