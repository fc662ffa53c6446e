// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "format/records.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/session/stream.h"

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
                 .size = FindSize(*address),
                 .flags = flags});
    RecordShare(kId, call.times(), format::ShareKind::kImport, place.device, *address, 0,
                MakeShareKey(&handle, sizeof handle));
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
                FindBase(address), 0, MakeShareKey(handle, sizeof *handle));
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
                FindBase(address), 0, 0);
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

// ---- checkpoints: a process, this one or another, gives all its device memory back and gets it
// again. The process itself makes no call for it: the process that calls the driver records it.
constexpr format::CheckpointKind GetKind(HookId id) {
  switch (id) {
    case HookId::cuCheckpointProcessLock:
      return format::CheckpointKind::kLock;
    case HookId::cuCheckpointProcessCheckpoint:
      return format::CheckpointKind::kCheckpoint;
    case HookId::cuCheckpointProcessRestore:
      return format::CheckpointKind::kRestore;
    default:
      return format::CheckpointKind::kUnlock;
  }
}

template <HookId kId, class Args>
CUresult ActOnProcess(int pid, Args* args) {
  constexpr format::CheckpointKind kKind = GetKind(kId);
  HookCall<kId> call;
  const CUresult result = call(pid, args);
  // The memory may come back with another size, because the driver makes parts of it anew.
  if (kKind == format::CheckpointKind::kUnlock && result == kSuccess)
    RequestReading(format::kNoDevice);
  if (!call.watching() || result != kSuccess)
    return result;
  RecordScope scope(Want::kAlways);
  if (scope) {
    scope->Append(format::Checkpoint{.begin = call.times().begin,
                                     .end = call.times().end,
                                     .api = scope->InternLiteral(HookName(kId)),
                                     .kind = static_cast<uint64_t>(kKind),
                                     .pid = static_cast<uint64_t>(pid)});
  }
  return result;
}

}  // namespace
}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_OTHER_PROCESSES 1
#include "probe/hooks/cuda/define_wrappers.h"
#undef VRAMSCOPE_CUDA_IS_OTHER_PROCESSES
