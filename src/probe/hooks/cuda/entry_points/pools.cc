// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/entry_points/pools.h"

#include <sched.h>

#include <atomic>
#include <utility>

#include "format/records.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/session/slot_table.h"
#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

namespace vramscope::probe::cuda {
namespace {

// How a PoolCreate record says where the pool comes from.
enum class PoolOrigin : uint8_t { kCreated = 0, kDefault = 1, kImported = 2 };

// How a pool's bytes count on the device.
enum class PoolCost : uint8_t {
  kReserved,  // what it holds
  kManaged,   // nothing: pages come with their use, and no process is charged for them
  kImported,  // nothing: the exporter pays
};

// A slot is `busy` while a thread asks the driver about its pool. A thread that destroys the pool
// or begins a capture waits for that, for a bounded time. A thread that finds it busy leaves it
// stale: then the other one asks again.
struct Pool {
  std::atomic<bool> busy;
  EarliestPendingChange stale;
  std::atomic<PoolCost> cost;
  std::atomic<int32_t> device;
  std::atomic<uint64_t> reserved;
  std::atomic<uint64_t> threshold;  // up to here it keeps what it has
};

constexpr size_t kMaxPools = 1024;  // further ones are not read, and counted as lost
using PoolTable = SlotTable<Pool, kMaxPools>;
using PoolSlot = PoolTable::Slot;
constinit PoolTable g_pools{};

// In ticks, 15 to 50 us: in so long a while NVML may have been asked.
constexpr uint64_t kLongTicks = 50'000;

// Some pool holds more than its threshold, or could not be read when it changed.
constinit std::atomic<bool> g_may_shrink{false};

// Calls under way in which a pool may shrink, and since when there is one.
constinit std::atomic<uint32_t> g_shrinking_calls{0};
constinit EarliestPendingChange g_shrinking_since;

// False if that was known. Looked at before it is written: the line stays shared between threads
// that allocate.
bool NoteMayShrink() {
  if (g_may_shrink.load(std::memory_order_seq_cst))
    return false;
  g_may_shrink.store(true, std::memory_order_seq_cst);
  return true;
}

PoolSlot* FindPool(CUmemoryPool pool) {
  return g_pools.Find(Bits(pool));
}

// If another thread is just inserting the pool, waits until it has.
PoolSlot* AwaitPool(CUmemoryPool pool) {
  constexpr int kMaxTurns = 8;
  for (int turn = 0; turn < kMaxTurns; ++turn) {
    if (PoolSlot* slot = FindPool(pool))
      return slot;
    sched_yield();
  }
  return nullptr;
}

bool AskPool(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t* value) {
  auto* const ask = DriverCall<CallId::cuMemPoolGetAttribute>();
  return ask != nullptr && ask(pool, attribute, value) == kSuccess;
}

// nullptr if the table is full.
VRAMSCOPE_NOINLINE PoolSlot* DescribePool(const CallTimes& times,
                                          CUmemoryPool pool,
                                          int32_t device,
                                          PoolOrigin origin,
                                          PoolCost cost) {
  const auto inserted = g_pools.Insert(Bits(pool), [=](Pool& value) {
    value.stale.Clear();
    value.cost.store(cost, std::memory_order_relaxed);
    value.device.store(device, std::memory_order_relaxed);
    value.reserved.store(0, std::memory_order_relaxed);
    value.threshold.store(0, std::memory_order_relaxed);
  });
  if (inserted.outcome == PoolTable::Outcome::kKnown)
    return AwaitPool(pool);
  if (inserted.outcome == PoolTable::Outcome::kFull) {
    CountLoss(format::Loss::kNoReading);
    return nullptr;
  }
  PoolSlot* const slot = inserted.slot;
  uint64_t threshold = 0;
  if (cost == PoolCost::kReserved && !IsAnyStreamCapturing() &&
      AskPool(pool, kPoolReleaseThreshold, &threshold)) {
    slot->value.threshold.store(threshold, std::memory_order_relaxed);
  }
  NoteDevice(device);
  RecordScope scope(Want::kAlways);
  if (!scope)
    return slot;
  scope->Append(format::PoolCreate{.begin = times.begin,
                                   .end = times.end,
                                   .pool = Bits(pool),
                                   .device = device,
                                   .kind = static_cast<uint64_t>(origin),
                                   .stack = CapturePythonStack(*scope),
                                   .native = CaptureNativeStack(*scope)});
  return slot;
}

// Describes a pool at its first sight.
PoolSlot* NotePool(const CallTimes& times,
                   CUmemoryPool pool,
                   int32_t device,
                   PoolOrigin origin,
                   PoolCost cost) {
  PoolSlot* const known = FindPool(pool);
  return known != nullptr ? known : DescribePool(times, pool, device, origin, cost);
}

int32_t GetPoolDevice(const CUmemLocation& location) {
  if (location.type == kLocationDevice)
    return location.id;
  return location.type == kLocationNone ? format::kNoDevice : format::kHostDevice;
}

PoolCost GetCost(int allocation_type) {
  return allocation_type == kAllocationManaged ? PoolCost::kManaged : PoolCost::kReserved;
}

bool IsAboveThreshold(const PoolSlot& slot) {
  return slot.value.reserved.load(std::memory_order_seq_cst) >
         slot.value.threshold.load(std::memory_order_relaxed);
}

void LeaveStale(PoolSlot* slot, uint64_t since) {
  slot->value.stale.Note(since);
  NoteMayShrink();
}

// Asks once, as the one thread that has the slot, and gives it back. True if it must be asked
// again: before the others knew that it may shrink, none of them read it after a call that made it.
bool AskReserved(PoolSlot* slot, uint64_t since, bool others_may_change_it) {
  const uint64_t handle = slot->key();
  auto* const pool = reinterpret_cast<CUmemoryPool>(handle);
  const uint64_t last = slot->value.reserved.load(std::memory_order_relaxed);
  uint64_t reserved = 0, used = 0;
  const bool known = handle != 0 && AskPool(pool, kPoolReservedCurrent, &reserved);
  if (reserved < last)
    since = g_shrinking_since.Earliest(since);
  // An unchanged figure may have changed twice, or another thread has written the change without
  // its begin. Later readings of the device show the change or not, and so do NVML's, which other
  // processes take.
  const bool write = known &&
                     (reserved != last || WasReadSince(since) ||
                      (others_may_change_it && Now() - since > kLongTicks)) &&
                     AskPool(pool, kPoolUsedCurrent, &used);
  const int32_t device = slot->value.device.load(std::memory_order_relaxed);
  const uint64_t time = write ? Now() : 0;
  if (known)
    slot->value.reserved.store(reserved, std::memory_order_seq_cst);
  const bool again = known && IsAboveThreshold(*slot) && NoteMayShrink();
  slot->value.busy.store(false, std::memory_order_seq_cst);
  if (!write)
    return again;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return again;
  NoteExplicitAlloc(device);
  scope->Append(format::PoolReading{.time = time,
                                    .pool = handle,
                                    .device = device,
                                    .reserved = reserved,
                                    .used = used,
                                    .since = time - since});
  return again;
}

// The figure is in the trace at the instant at which it was read: the driver's answers to two
// threads stay in their order, because only one thread at a time reads a slot.
void ReadPool(PoolSlot* slot, bool others_may_change_it = false) {
  if (slot->value.cost.load(std::memory_order_relaxed) != PoolCost::kReserved)
    return;
  uint64_t since = t_cuda_call_begin;
  constexpr int kMaxTurns = 8;
  for (int turn = 0; turn < kMaxTurns; ++turn) {
    if (slot->value.busy.exchange(true, std::memory_order_seq_cst)) {
      LeaveStale(slot, since);
      if (slot->value.busy.load(std::memory_order_seq_cst))
        return;  // that thread sees it
      continue;
    }
    if (IsAnyStreamCapturing()) {
      LeaveStale(slot, since);
      slot->value.busy.store(false, std::memory_order_release);
      return;
    }
    const uint64_t own = std::exchange(since, slot->value.stale.Take(since));
    others_may_change_it = others_may_change_it || since != own;
    if (!AskReserved(slot, since, others_may_change_it) && !slot->value.stale.IsSet())
      return;
  }
}

bool MayShrink(const PoolSlot& slot) {
  return slot.value.stale.IsSet() || slot.value.busy.load(std::memory_order_seq_cst) ||
         IsAboveThreshold(slot);
}

bool MayAnyPoolShrink() {
  bool found = false;
  g_pools.Visit([&](const PoolSlot& slot, uint64_t) {
    found = MayShrink(slot);
    return !found;
  });
  return found;
}

void ReadPoolsThatMayShrink() {
  g_pools.Visit([](PoolSlot& slot, uint64_t) {
    if (MayShrink(slot))
      ReadPool(&slot, true);
    return true;
  });
}

void WaitForReader(const PoolSlot& slot) {
  constexpr int kMaxTurns = 1000;
  for (int turn = 0; turn < kMaxTurns && slot.value.busy.load(std::memory_order_seq_cst); ++turn)
    sched_yield();
}

// The pool is about to be destroyed: from here on new questions about it are refused.
bool RemovePool(PoolSlot* slot, CUmemoryPool pool) {
  const bool removed = g_pools.Remove(slot, Bits(pool));
  WaitForReader(*slot);
  return removed;
}

CUmemoryPool CurrentPool(int32_t device) {
  auto* const ask = DriverCall<CallId::cuDeviceGetMemPool>();
  CUmemoryPool pool = nullptr;
  return ask != nullptr && ask(&pool, device) == kSuccess ? pool : nullptr;
}

// A stream may belong to another device than the current context: where there are several, the
// address says on which one it is.
int32_t GetPoolDevice(CUdeviceptr address, const Place& place) {
  const uint64_t known = KnownDevices();
  auto* const ask = DriverCall<CallId::cuPointerGetAttribute>();
  int device = format::kNoDevice;
  if ((known & (known - 1)) != 0 && ask != nullptr &&
      ask(&device, kPointerDevice, address) == kSuccess) {
    return device;
  }
  return place.device;
}

// A pool may have grown before the allocation failed.
void ReadPoolAfterFailure(const CallTimes& times, int32_t device) {
  CUmemoryPool const pool = CurrentPool(device);
  PoolSlot* const slot =
      pool != nullptr ? NotePool(times, pool, device, PoolOrigin::kDefault, PoolCost::kReserved)
                      : nullptr;
  if (slot != nullptr)
    ReadPool(slot);
}

void ReadPoolAfterFailure(const CallTimes&, int32_t, CUmemoryPool pool) {
  if (PoolSlot* slot = FindPool(pool))
    ReadPool(slot);
}

template <HookId kId, class... Pool>
CUresult AllocIn(CUdeviceptr* address, size_t size, CUstream stream, Pool... given_pool) {
  constexpr bool kPerThread = kIsPerThread<kId>;
  HookCall<kId> call;
  if (!call.watching())
    return call(address, size, given_pool..., stream);
  const Place place = CurrentPlace();
  CatchUpReading(place);
  const CUresult result = call(address, size, given_pool..., stream);
  if (result != kSuccess) {
    RecordFailure(kId, call.times(), place, result, size);
    if (result == kOutOfMemoryError && !IsCapturing(stream, kPerThread))
      ReadPoolAfterFailure(call.times(), place.device, given_pool...);
    return result;
  }
  if (IsCapturing(stream, kPerThread)) {
    NoteGraphAddress(*address);  // a node of a graph: its memory comes with the launch
    return result;
  }
  TakeGraphAddress(*address);
  int32_t device = format::kNoDevice;
  CUmemoryPool pool = nullptr;
  PoolSlot* slot = nullptr;
  if constexpr (sizeof...(given_pool) != 0) {
    pool = (given_pool, ...);
    slot = FindPool(pool);
  }
  if (slot == nullptr) {
    device = GetPoolDevice(*address, place);
    if (pool == nullptr)
      pool = CurrentPool(device);
    if (pool != nullptr)
      slot = NotePool(call.times(), pool, device, PoolOrigin::kDefault, PoolCost::kReserved);
  }
  if (slot != nullptr)
    device = slot->value.device.load(std::memory_order_relaxed);
  const bool managed =
      slot != nullptr && slot->value.cost.load(std::memory_order_relaxed) == PoolCost::kManaged;
  if (managed)
    NoteManagedAlloc();
  RecordAlloc(kId, call.times(),
              {place.context, managed && device == format::kNoDevice ? place.device : device},
              {.kind = managed ? format::MemoryKind::kManaged : format::MemoryKind::kAsync,
               .address = *address,
               .size = size,
               .pool = Bits(pool),
               .stream = stream});
  if (slot != nullptr)
    ReadPool(slot);
  return result;
}

template <HookId kId>
CUresult AllocAsync(CUdeviceptr* address, size_t size, CUstream stream) {
  return AllocIn<kId>(address, size, stream);
}

template <HookId kId>
CUresult AllocAsync(CUdeviceptr* address, size_t size, CUmemoryPool pool, CUstream stream) {
  return AllocIn<kId>(address, size, stream, pool);
}

template <HookId kId>
CUresult FreeAsync(CUdeviceptr address, CUstream stream) {
  HookCall<kId> call;
  const CUresult result = call(address, stream);
  if (!call.watching() || result != kSuccess || IsCapturing(stream, kIsPerThread<kId>))
    return result;
  if (TakeGraphAddress(address))
    ReadGraphPool(CurrentPlace().device);
  else
    RecordFree(kId, call.times(), format::MemoryKind::kAsync, address, stream);
  return result;
}

// Describes a pool that the program asked the driver for.
template <HookId kId>
CUresult GetPool(CUmemoryPool* pool, CUmemLocation* location, int type) {
  HookCall<kId> call;
  const CUresult result = call(pool, location, type);
  if (call.watching() && result == kSuccess && *pool != nullptr && location != nullptr)
    NotePool(call.times(), *pool, GetPoolDevice(*location), PoolOrigin::kDefault, GetCost(type));
  return result;
}

template <HookId kId>
CUresult CreatePool(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  HookCall<kId> call;
  const CUresult result = call(pool, properties);
  if (call.watching() && result == kSuccess) {
    NotePool(call.times(), *pool, GetPoolDevice(properties->location), PoolOrigin::kCreated,
             GetCost(properties->allocType));
  }
  return result;
}

// Blocks that are still out keep the pool's memory until the last of them is freed; the pool cannot
// be asked any more.
template <HookId kId>
CUresult DestroyPool(CUmemoryPool pool) {
  HookCall<kId> call;
  PoolSlot* const slot = call.watching() ? FindPool(pool) : nullptr;
  const bool removed = slot != nullptr && RemovePool(slot, pool);
  const CUresult result = call(pool);
  // If another pool took its slot meanwhile, it is not read until the next allocation.
  if (removed && result != kSuccess)
    g_pools.Restore(slot, Bits(pool));
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

template <HookId kId>
CUresult TrimPool(CUmemoryPool pool, size_t keep_bytes) {
  HookCall<kId> call;
  const ShrinkingCall shrinking(true);
  const CUresult result = call(pool, keep_bytes);
  if (PoolSlot* slot = call.watching() ? FindPool(pool) : nullptr)
    ReadPool(slot);
  return result;
}

template <HookId kId>
CUresult SetPoolAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  HookCall<kId> call;
  const CUresult result = call(pool, attribute, value);
  if (!call.watching() || result != kSuccess || attribute != kPoolReleaseThreshold)
    return result;
  if (PoolSlot* slot = FindPool(pool)) {
    const uint64_t threshold = *static_cast<const uint64_t*>(value);
    slot->value.threshold.store(threshold, std::memory_order_relaxed);
    if (IsAboveThreshold(*slot))
      NoteMayShrink();
  }
  return result;
}

template <HookId kId, class... Args>
CUresult ImportPool(CUmemoryPool* pool, Args... args) {
  HookCall<kId> call;
  const CUresult result = call(pool, args...);
  if (call.watching() && result == kSuccess) {
    NotePool(call.times(), *pool, CurrentPlace().device, PoolOrigin::kImported,
             PoolCost::kImported);
  }
  return result;
}

template <HookId kId>
CUresult ImportPointer(CUdeviceptr* address, CUmemoryPool pool, CUmemPoolPtrExportData* data) {
  HookCall<kId> call;
  const CUresult result = call(address, pool, data);
  if (!call.watching() || result != kSuccess)
    return result;
  const Place place = CurrentPlace();
  RecordAlloc(kId, call.times(), place,
              {.kind = format::MemoryKind::kIpcImport,
               .address = *address,
               .size = FindSize(*address),
               .pool = Bits(pool)});
  RecordShare(kId, call.times(), format::ShareKind::kImport, place.device, *address, Bits(pool),
              MakeShareKey(data, sizeof *data));
  return result;
}

template <HookId kId>
CUresult ExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr address) {
  HookCall<kId> call;
  const CUresult result = call(data, address);
  if (call.watching() && result == kSuccess) {
    RecordShare(kId, call.times(), format::ShareKind::kExport, CurrentPlace().device, address, 0,
                MakeShareKey(data, sizeof *data));
  }
  return result;
}

}  // namespace

bool MayPoolsShrink() {
  return g_may_shrink.load(std::memory_order_relaxed);
}

void ShrinkingCall::Begin() {
  g_shrinking_calls.fetch_add(1, std::memory_order_seq_cst);
  g_shrinking_since.Note(Now());
}

void ShrinkingCall::End() {
  if (g_shrinking_calls.fetch_sub(1, std::memory_order_seq_cst) == 1)
    g_shrinking_since.Clear();
}

// Another thread may see that a pool grew while this one finds that none can shrink: so it looks
// again after it has said so.
void ReadPoolsAfterSynchronisation() {
  if (!MayPoolsShrink())
    return;
  ReadPoolsThatMayShrink();
  constexpr int kMaxTurns = 4;
  for (int turn = 0; turn < kMaxTurns && !MayAnyPoolShrink(); ++turn) {
    g_may_shrink.store(false, std::memory_order_seq_cst);
    if (!MayAnyPoolShrink())
      return;
    NoteMayShrink();
    ReadPoolsThatMayShrink();
  }
}

void WaitForPoolReaders() {
  g_pools.VisitUsed([](const PoolSlot& slot) {
    WaitForReader(slot);
    return true;
  });
}

void ReadPoolsWithoutContext(int32_t device) {
  auto* const ask = DriverCall<CallId::cuDeviceGetDefaultMemPool>();
  CUmemoryPool default_pool = nullptr;
  if (ask == nullptr || ask(&default_pool, device) != kSuccess)
    default_pool = nullptr;
  g_pools.Visit([=](PoolSlot& slot, uint64_t pool) {
    if (slot.value.device.load(std::memory_order_relaxed) != device)
      return true;
    if (pool == Bits(default_pool))
      ReadPool(&slot);
    else
      RemovePool(&slot, reinterpret_cast<CUmemoryPool>(pool));
    return true;
  });
  ReadGraphPool(device);
}

void ForgetPools(OtherThreads others) {
  if (others == OtherThreads::kGone) {
    g_pools.VisitUsed([](PoolSlot& slot) {
      slot.value.busy.store(false, std::memory_order_relaxed);
      return true;
    });
  }
  g_pools.Clear(others);
  g_may_shrink.store(false, std::memory_order_relaxed);
}

}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_POOLS 1
#include "probe/hooks/cuda/define_wrappers.h"
#undef VRAMSCOPE_CUDA_IS_POOLS
