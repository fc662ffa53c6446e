// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/state/record.h"

#include <cstring>

#include "format/records.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/session/stream.h"
#include "probe/session/tables.h"
#include "probe/stack/stacks.h"

namespace vramscope::probe::cuda {

constinit VRAMSCOPE_TLS uint32_t t_recorded = 0;

void RecordAlloc(HookId api,
                 const CallTimes& times,
                 const Place& place,
                 const Allocation& allocation) {
  ++t_recorded;
  const bool on_host = allocation.kind == format::MemoryKind::kHostPinned ||
                       allocation.kind == format::MemoryKind::kHostRegistered;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  if (!on_host)
    NoteExplicitAlloc(place.device);
  scope->Append(format::Alloc{.begin = times.begin,
                              .end = times.end,
                              .api = scope->InternLiteral(HookName(api)),
                              .kind = static_cast<uint64_t>(allocation.kind),
                              .device = on_host ? format::kHostDevice : place.device,
                              .context = Bits(place.context),
                              .address = allocation.address,
                              .size = allocation.size,
                              .actual = allocation.actual,
                              .pool = allocation.pool,
                              .stream = Bits(allocation.stream),
                              .extra = allocation.flags,
                              .stack = CapturePythonStack(*scope),
                              .native = CaptureNativeStack(*scope)});
}

void RecordFree(HookId api,
                const CallTimes& times,
                format::MemoryKind kind,
                uint64_t address,
                CUstream stream) {
  if (address == 0)
    return;
  ++t_recorded;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  NoteExplicitFree();
  scope->Append(format::Free{.begin = times.begin,
                             .end = times.end,
                             .api = scope->InternLiteral(HookName(api)),
                             .kind = static_cast<uint64_t>(kind),
                             .address = address,
                             .stream = Bits(stream)});
}

void RecordFailure(HookId api,
                   const CallTimes& times,
                   const Place& place,
                   CUresult result,
                   uint64_t size,
                   Alarm alarm) {
  if (size == 0 && result != kOutOfMemoryError)
    return;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::Failure{.begin = times.begin,
                                .end = times.end,
                                .api = scope->InternLiteral(HookName(api)),
                                .result = static_cast<uint64_t>(result),
                                .device = place.device,
                                .size = size,
                                .stack = CapturePythonStack(*scope),
                                .native = CaptureNativeStack(*scope)});
  if (result == kOutOfMemoryError && alarm == Alarm::kYes)
    CountRefusal(Refusal::kByDriver);
}

uint64_t MakeShareKey(const void* content, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(content);
  uint64_t hash = bytes;
  for (size_t done = 0; done < bytes; done += sizeof(uint64_t)) {
    uint64_t word = 0;
    const size_t left = bytes - done;
    std::memcpy(&word, at + done, left < sizeof word ? left : sizeof word);
    hash = HashMix(hash, word);
  }
  return hash != 0 ? hash : 1;
}

void RecordShare(HookId api,
                 const CallTimes& times,
                 format::ShareKind kind,
                 int32_t device,
                 uint64_t address,
                 uint64_t handle,
                 uint64_t key) {
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::Share{.begin = times.begin,
                              .end = times.end,
                              .api = scope->InternLiteral(HookName(api)),
                              .kind = static_cast<uint64_t>(kind),
                              .device = device,
                              .address = address,
                              .handle = handle,
                              .key = key});
}

uint64_t FindSize(CUdeviceptr address) {
  CUdeviceptr base = 0;
  size_t size = 0;
  auto* const ask = DriverCall<CallId::cuMemGetAddressRange_v2>();
  return ask != nullptr && ask(&base, &size, address) == kSuccess ? size : 0;
}

void RecordPriorAllocation(CUdeviceptr address) {
  auto* const ask = DriverCall<CallId::cuPointerGetAttribute>();
  const uint64_t size = FindSize(address);
  if (ask == nullptr || size == 0)
    return;
  unsigned is_managed = 0;
  CUmemoryPool pool = nullptr;
  if ((ask(&is_managed, kPointerIsManaged, address) == kSuccess && is_managed != 0) ||
      (ask(&pool, kPointerPool, address) == kSuccess && pool != nullptr)) {
    return;
  }
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::Prior{.time = Now(),
                              .kind = static_cast<uint64_t>(format::PriorKind::kAllocation),
                              .device = CurrentPlace().device,
                              .address = address,
                              .size = size,
                              .name = 0});
}

CUdeviceptr FindBase(CUdeviceptr address) {
  CUdeviceptr base = 0;
  size_t size = 0;
  auto* const ask = DriverCall<CallId::cuMemGetAddressRange_v2>();
  return ask != nullptr && ask(&base, &size, address) == kSuccess ? base : address;
}

}  // namespace vramscope::probe::cuda
