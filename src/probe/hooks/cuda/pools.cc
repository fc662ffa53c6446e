// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/pools.h"

#include <sched.h>

#include <atomic>

#include "format/records.h"
#include "probe/hooks/cuda/reading.h"
#include "probe/hooks/cuda/record.h"
#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

namespace vramscope::probe::cuda {
namespace {

// How a PoolCreate record says where the pool comes from.
enum class PoolOrigin : uint8_t { kCreated = 0, kDefault = 1, kImported = 2 };

// A slot is `busy` while a thread asks the driver about its pool; whoever destroys the pool waits
// for that, a bounded while, so that nobody asks about a pool that is gone.
struct PoolSlot {
  std::atomic<uint64_t> pool;  // 0: never used, kRemoved, kClaimed, or the handle
  std::atomic<bool> busy;
  std::atomic<int32_t> device;
  std::atomic<uint64_t> reserved;
  std::atomic<uint64_t> used;
};

constexpr size_t kMaxPools = 128;  // further ones are not read
constexpr uint64_t kRemoved = 1;
constexpr uint64_t kClaimed = 2;
constinit PoolSlot g_pools[kMaxPools]{};

constexpr int32_t kMaxDevices = 64;
struct GraphFigure {
  std::atomic<uint64_t> reserved;
  std::atomic<uint64_t> used;
};
constinit GraphFigure g_graph_figures[kMaxDevices]{};

// Some pool may hold more than it uses: calls that synchronise are looked at.
constinit std::atomic<bool> g_may_shrink{false};

PoolSlot* FindPool(CUmemoryPool pool) {
  for (auto& slot : g_pools) {
    const uint64_t found = slot.pool.load(std::memory_order_acquire);
    if (found == Bits(pool))
      return &slot;
    if (found == 0)
      return nullptr;
  }
  return nullptr;
}

// nullptr when it was there already, or when there is no room.
PoolSlot* InsertPool(CUmemoryPool pool, int32_t device) {
  if (FindPool(pool) != nullptr)
    return nullptr;
  for (auto& slot : g_pools) {
    uint64_t found = slot.pool.load(std::memory_order_relaxed);
    if (found > kRemoved ||
        !slot.pool.compare_exchange_strong(found, kClaimed, std::memory_order_acquire)) {
      continue;
    }
    slot.device.store(device, std::memory_order_relaxed);
    slot.reserved.store(0, std::memory_order_relaxed);
    slot.used.store(0, std::memory_order_relaxed);
    slot.pool.store(Bits(pool), std::memory_order_release);
    return &slot;
  }
  return nullptr;
}

void NotePool(const CallTimes& times, CUmemoryPool pool, int32_t device, PoolOrigin origin) {
  if (FindPool(pool) != nullptr || InsertPool(pool, device) == nullptr)
    return;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::PoolCreate{.begin = times.begin,
                                   .end = times.end,
                                   .pool = Bits(pool),
                                   .device = device,
                                   .kind = static_cast<uint64_t>(origin),
                                   .stack = CapturePythonStack(*scope),
                                   .native = CaptureNativeStack(*scope)});
}

void WritePoolReading(uint64_t pool, int32_t device, uint64_t reserved, uint64_t used) {
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  NoteExplicitAlloc(device);
  scope->Append(format::PoolReading{
      .time = Now(), .pool = pool, .device = device, .reserved = reserved, .used = used});
}

bool AskPool(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t* value) {
  auto* const ask = DriverCall<CallId::cuMemPoolGetAttribute>();
  return ask != nullptr && ask(pool, attribute, value) == kSuccess;
}

enum class Look {
  kGrown,    // after an allocation: only what the pool holds is asked, first
  kChanged,  // after anything else
};

void ReadPool(PoolSlot* slot, Look look) {
  if (IsAnyStreamCapturing() || slot->busy.exchange(true, std::memory_order_seq_cst))
    return;
  const uint64_t handle = slot->pool.load(std::memory_order_seq_cst);
  auto* const pool = reinterpret_cast<CUmemoryPool>(handle);
  const uint64_t last_reserved = slot->reserved.load(std::memory_order_relaxed);
  uint64_t reserved = 0, used = 0;
  bool write = handle > kClaimed && AskPool(pool, kPoolReservedCurrent, &reserved) &&
               (look == Look::kChanged || reserved != last_reserved) &&
               AskPool(pool, kPoolUsedCurrent, &used);
  const int32_t device = slot->device.load(std::memory_order_relaxed);
  if (write) {
    const uint64_t last_used = slot->used.exchange(used, std::memory_order_relaxed);
    slot->reserved.store(reserved, std::memory_order_relaxed);
    write = reserved != last_reserved || used != last_used;
    if (reserved > used)
      g_may_shrink.store(true, std::memory_order_relaxed);
  }
  slot->busy.store(false, std::memory_order_release);
  if (write)
    WritePoolReading(handle, device, reserved, used);
}

// The pool is about to go: from here on nobody begins to ask about it.
void RemovePool(CUmemoryPool pool) {
  PoolSlot* const slot = FindPool(pool);
  if (slot == nullptr)
    return;
  slot->pool.store(kRemoved, std::memory_order_seq_cst);
  constexpr int kMaxTurns = 1000;
  for (int turn = 0; turn < kMaxTurns && slot->busy.load(std::memory_order_seq_cst); ++turn)
    sched_yield();
}

CUmemoryPool CurrentPool(int32_t device) {
  auto* const ask = DriverCall<CallId::cuDeviceGetMemPool>();
  CUmemoryPool pool = nullptr;
  return ask != nullptr && ask(&pool, device) == kSuccess ? pool : nullptr;
}

template <HookId kId, class... Pool>
CUresult AllocAsync(bool per_thread,
                    CUdeviceptr* address,
                    size_t size,
                    CUstream stream,
                    Pool... given_pool) {
  HookCall<kId> call;
  if (!call.watching())
    return call(address, size, given_pool..., stream);
  const Place place = CurrentPlace();
  CatchUpReading(place);
  const CUresult result = call(address, size, given_pool..., stream);
  if (result != kSuccess) {
    RecordFailure(kId, call.times(), place, result, size);
    return result;
  }
  if (IsCapturing(stream, per_thread))
    return result;  // a node of a graph: its memory comes with the launch
  CUmemoryPool pool = nullptr;
  if constexpr (sizeof...(given_pool) != 0)
    pool = (given_pool, ...);
  else
    pool = CurrentPool(place.device);
  if (pool != nullptr)
    NotePool(call.times(), pool, place.device, PoolOrigin::kDefault);
  RecordAlloc(kId, call.times(), place,
              {.kind = format::MemoryKind::kAsync,
               .address = *address,
               .size = size,
               .pool = Bits(pool),
               .stream = stream});
  if (PoolSlot* slot = pool != nullptr ? FindPool(pool) : nullptr)
    ReadPool(slot, Look::kGrown);
  return result;
}

template <HookId kId>
CUresult FreeAsync(bool per_thread, CUdeviceptr address, CUstream stream) {
  HookCall<kId> call;
  const CUresult result = call(address, stream);
  if (!call.watching() || result != kSuccess || IsCapturing(stream, per_thread))
    return result;
  RecordFree(kId, call.times(), format::MemoryKind::kAsync, address, stream);
  if (!g_may_shrink.load(std::memory_order_relaxed))
    g_may_shrink.store(true, std::memory_order_relaxed);
  return result;
}

template <HookId kId, class... Args>
CUresult Synchronise(Args... args) {
  HookCall<kId> call;
  const CUresult result = call(args...);
  if (call.watching())
    ReadPoolsAfterSynchronisation();
  return result;
}

int32_t DeviceOf(const CUmemLocation& location) {
  return location.type == kLocationDevice ? location.id : format::kHostDevice;
}

}  // namespace

void ReadPoolsAfterSynchronisation() {
  if (!g_may_shrink.load(std::memory_order_relaxed) || IsAnyStreamCapturing())
    return;
  g_may_shrink.store(false, std::memory_order_relaxed);
  for (auto& slot : g_pools) {
    const uint64_t pool = slot.pool.load(std::memory_order_acquire);
    if (pool == 0)
      return;
    if (pool > kClaimed)
      ReadPool(&slot, Look::kChanged);
  }
}

void ReadGraphPool(int32_t device) {
  auto* const ask = DriverCall<CallId::cuDeviceGetGraphMemAttribute>();
  if (ask == nullptr || device < 0 || device >= kMaxDevices || IsAnyStreamCapturing())
    return;
  uint64_t reserved = 0, used = 0;
  if (ask(device, kGraphReservedCurrent, &reserved) != kSuccess ||
      ask(device, kGraphUsedCurrent, &used) != kSuccess) {
    return;
  }
  GraphFigure& figure = g_graph_figures[device];
  const uint64_t last_reserved = figure.reserved.exchange(reserved, std::memory_order_relaxed);
  const uint64_t last_used = figure.used.exchange(used, std::memory_order_relaxed);
  if (reserved != last_reserved || used != last_used)
    WritePoolReading(0, device, reserved, used);
}

void ForgetPoolsOf(int32_t device) {
  for (auto& slot : g_pools) {
    const uint64_t pool = slot.pool.load(std::memory_order_acquire);
    if (pool > kClaimed && slot.device.load(std::memory_order_relaxed) == device)
      RemovePool(reinterpret_cast<CUmemoryPool>(pool));
  }
  if (device >= 0 && device < kMaxDevices) {
    g_graph_figures[device].reserved.store(0, std::memory_order_relaxed);
    g_graph_figures[device].used.store(0, std::memory_order_relaxed);
  }
}

void ForgetPools() {
  for (auto& slot : g_pools) {
    slot.pool.store(0, std::memory_order_relaxed);
    slot.busy.store(false, std::memory_order_relaxed);
  }
  for (auto& figure : g_graph_figures) {
    figure.reserved.store(0, std::memory_order_relaxed);
    figure.used.store(0, std::memory_order_relaxed);
  }
  g_may_shrink.store(false, std::memory_order_relaxed);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemAllocAsync)(CUdeviceptr* address, size_t size, CUstream stream) {
  return AllocAsync<HookId::cuMemAllocAsync>(false, address, size, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemAllocAsync_ptsz)(CUdeviceptr* address, size_t size, CUstream stream) {
  return AllocAsync<HookId::cuMemAllocAsync_ptsz>(true, address, size, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemAllocFromPoolAsync)
(CUdeviceptr* address, size_t size, CUmemoryPool pool, CUstream stream) {
  return AllocAsync<HookId::cuMemAllocFromPoolAsync>(false, address, size, stream, pool);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemAllocFromPoolAsync_ptsz)
(CUdeviceptr* address, size_t size, CUmemoryPool pool, CUstream stream) {
  return AllocAsync<HookId::cuMemAllocFromPoolAsync_ptsz>(true, address, size, stream, pool);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemFreeAsync)(CUdeviceptr address, CUstream stream) {
  return FreeAsync<HookId::cuMemFreeAsync>(false, address, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemFreeAsync_ptsz)(CUdeviceptr address, CUstream stream) {
  return FreeAsync<HookId::cuMemFreeAsync_ptsz>(true, address, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuMemPoolCreate)(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  HookCall<HookId::cuMemPoolCreate> call;
  const CUresult result = call(pool, properties);
  if (call.watching() && result == kSuccess)
    NotePool(call.times(), *pool, DeviceOf(properties->location), PoolOrigin::kCreated);
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuMemPoolDestroy)(CUmemoryPool pool) {
  HookCall<HookId::cuMemPoolDestroy> call;
  if (call.watching())
    RemovePool(pool);
  const CUresult result = call(pool);
  if (!call.watching() || result != kSuccess)
    return result;
  RecordScope scope(Want::kAlways);
  if (scope) {
    NoteExplicitFree();
    scope->Append(format::PoolDestroy{
        .begin = call.times().begin, .end = call.times().end, .pool = Bits(pool)});
  }
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuMemPoolTrimTo)(CUmemoryPool pool, size_t keep_bytes) {
  HookCall<HookId::cuMemPoolTrimTo> call;
  const CUresult result = call(pool, keep_bytes);
  if (PoolSlot* slot = call.watching() ? FindPool(pool) : nullptr)
    ReadPool(slot, Look::kChanged);
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuMemPoolImportFromShareableHandle)
(CUmemoryPool* pool, void* handle, CUmemAllocationHandleType type, unsigned long long flags) {
  HookCall<HookId::cuMemPoolImportFromShareableHandle> call;
  const CUresult result = call(pool, handle, type, flags);
  if (call.watching() && result == kSuccess)
    NotePool(call.times(), *pool, CurrentPlace().device, PoolOrigin::kImported);
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuMemPoolImportPointer)
(CUdeviceptr* address, CUmemoryPool pool, CUmemPoolPtrExportData* data) {
  HookCall<HookId::cuMemPoolImportPointer> call;
  const CUresult result = call(address, pool, data);
  if (!call.watching() || result != kSuccess)
    return result;
  CUdeviceptr base = 0;
  size_t size = 0;
  auto* const range = DriverCall<CallId::cuMemGetAddressRange_v2>();
  if (range == nullptr || range(&base, &size, *address) != kSuccess)
    size = 0;
  RecordAlloc(HookId::cuMemPoolImportPointer, call.times(), CurrentPlace(),
              {.kind = format::MemoryKind::kIpcImport,
               .address = *address,
               .size = size,
               .pool = Bits(pool)});
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxSynchronize)() {
  return Synchronise<HookId::cuCtxSynchronize>();
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxSynchronize_v2)(CUcontext context) {
  return Synchronise<HookId::cuCtxSynchronize_v2>(context);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamSynchronize)(CUstream stream) {
  return Synchronise<HookId::cuStreamSynchronize>(stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamSynchronize_ptsz)(CUstream stream) {
  return Synchronise<HookId::cuStreamSynchronize_ptsz>(stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuEventSynchronize)(CUevent event) {
  return Synchronise<HookId::cuEventSynchronize>(event);
}

}  // namespace vramscope::probe::cuda
