// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fake.h"

// Stream-ordered memory: pools grow by 32 MiB, and give back beyond their threshold when the
// program synchronises. While a stream is captured an allocation becomes a node of the graph.
namespace fake {

std::set<Pool*>& CreatedPools() {
  static auto* pools = new std::set<Pool*>;
  return *pools;
}

namespace {

constexpr uint64_t kAlignment = 512;
constexpr CUmemPool_attribute kReleaseThreshold = kPoolReleaseThreshold;

// Managed and host pools have no device, and no device pays for them.
bool ChargePool(const Pool* pool, uint64_t bytes) {
  return pool->device < 0 || Charge(pool->device, bytes);
}

void RefundPool(const Pool* pool, uint64_t bytes) {
  if (pool->device >= 0)
    Refund(pool->device, bytes);
}

// The pools of managed memory and of host memory that are there from the start.
Pool* SharedPool(CUmemAllocationType type) {
  static Pool* pools[2] = {};
  Pool*& pool = pools[type == kAllocationManaged ? 1 : 0];
  if (pool == nullptr)
    pool = new Pool{.device = -1, .is_default = true};
  return pool;
}

Pool* AsPool(CUmemoryPool handle) {
  auto* const pool = reinterpret_cast<Pool*>(handle);
  if (CreatedPools().count(pool) != 0)
    return pool->destroyed ? nullptr : pool;
  for (const Device& device : TheDriver().devices) {
    if (device.default_pool == pool)
      return pool;
  }
  for (const CUmemAllocationType type : {1, kAllocationManaged}) {
    if (SharedPool(type) == pool)
      return pool;
  }
  return nullptr;
}

Stream* CapturingStream(CUstream handle) {
  auto* const stream = reinterpret_cast<Stream*>(handle);
  const bool known = TheDriver().streams.count(stream) != 0;
  return known && stream->capture != nullptr ? stream : nullptr;
}

void Shrink(Pool* pool, uint64_t keep) {
  const uint64_t target = std::max(RoundUp(pool->used, kPoolStep), keep);
  if (pool->reserved <= target)
    return;
  RefundPool(pool, pool->reserved - target);
  pool->reserved = target;
}

CUresult Allocate(CUdeviceptr* address, uint64_t size, Pool* pool, CUstream stream) {
  if (size == 0)
    return kInvalidValue;
  const uint64_t bytes = RoundUp(size, kAlignment);
  if (Stream* capturing = CapturingStream(stream)) {
    capturing->capture->alloc_bytes += bytes;
    *address = TheDriver().addresses.Take(RoundUp(bytes, kPage), kPage);
    TheDriver().blocks[*address] = {size, 0, 0, nullptr, nullptr, BlockKind::kGraph, pool->device};
    return kSuccess;
  }
  if (pool->used + bytes > pool->reserved) {
    const uint64_t grown = RoundUp(pool->used + bytes, kPoolStep);
    if (!ChargePool(pool, grown - pool->reserved))
      return kOutOfMemory;
    pool->reserved = grown;
  }
  if (FailsLate())  // the pool stays as large as it is now
    return kOutOfMemory;
  pool->used += bytes;
  ++pool->allocations;
  *address = TheDriver().addresses.Take(bytes, kAlignment);
  TheDriver().blocks[*address] = {size, 0, 0, nullptr, pool, BlockKind::kPool, pool->device};
  return kSuccess;
}

CUresult Free(CUdeviceptr address, CUstream stream) {
  const auto found = TheDriver().blocks.find(address);
  if (found == TheDriver().blocks.end())
    return kInvalidValue;
  if (Stream* capturing = CapturingStream(stream)) {
    capturing->capture->free_bytes += RoundUp(found->second.size, kAlignment);
    TheDriver().blocks.erase(found);
    return kSuccess;
  }
  if (found->second.kind != BlockKind::kPool)
    return FreeLinear(address);
  FreePoolBlock(address);
  return kSuccess;
}

CUresult AllocateFromDevice(CUdeviceptr* address, uint64_t size, CUstream stream) {
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  // The stream decides, whichever context is current.
  auto* const known = reinterpret_cast<Stream*>(stream);
  const int ordinal =
      TheDriver().streams.count(known) != 0 ? known->context->device : context->device;
  Device& device = TheDriver().devices[static_cast<size_t>(ordinal)];
  return Allocate(address, size, device.current_pool, stream);
}

CUresult AllocateFrom(CUdeviceptr* address, uint64_t size, CUmemoryPool handle, CUstream stream) {
  Pool* const pool = AsPool(handle);
  return pool != nullptr ? Allocate(address, size, pool, stream) : kInvalidHandle;
}

void EndPool(Pool* pool) {
  CreatedPools().erase(pool);
  RefundPool(pool, pool->reserved);
  delete pool;
}

}  // namespace

void FreePoolBlock(uint64_t address) {
  const Block block = TheDriver().blocks[address];
  TheDriver().blocks.erase(address);
  const uint64_t bytes = RoundUp(block.size, kAlignment);
  TheDriver().addresses.Give(address, bytes);
  block.pool->used -= bytes;
  if (--block.pool->allocations == 0 && block.pool->destroyed)
    EndPool(block.pool);
}

void SynchronisePools() {
  FinishTouching();
  for (Device& device : TheDriver().devices)
    Shrink(device.default_pool, device.default_pool->threshold);
  for (Pool* pool : CreatedPools()) {
    if (!pool->destroyed)
      Shrink(pool, pool->threshold);
  }
}

FAKE_HOOK(cuMemAllocAsync)(CUdeviceptr* address, size_t size, CUstream stream) {
  FAKE_ENTER(cuMemAllocAsync);
  return AllocateFromDevice(address, size, stream);
}

FAKE_HOOK(cuMemAllocAsync_ptsz)(CUdeviceptr* address, size_t size, CUstream stream) {
  FAKE_ENTER(cuMemAllocAsync_ptsz);
  return AllocateFromDevice(address, size, stream);
}

FAKE_HOOK(cuMemAllocFromPoolAsync)
(CUdeviceptr* address, size_t size, CUmemoryPool pool, CUstream stream) {
  FAKE_ENTER(cuMemAllocFromPoolAsync);
  return AllocateFrom(address, size, pool, stream);
}

FAKE_HOOK(cuMemAllocFromPoolAsync_ptsz)
(CUdeviceptr* address, size_t size, CUmemoryPool pool, CUstream stream) {
  FAKE_ENTER(cuMemAllocFromPoolAsync_ptsz);
  return AllocateFrom(address, size, pool, stream);
}

FAKE_HOOK(cuMemFreeAsync)(CUdeviceptr address, CUstream stream) {
  FAKE_ENTER(cuMemFreeAsync);
  return Free(address, stream);
}

FAKE_HOOK(cuMemFreeAsync_ptsz)(CUdeviceptr address, CUstream stream) {
  FAKE_ENTER(cuMemFreeAsync_ptsz);
  return Free(address, stream);
}

FAKE_HOOK(cuMemPoolCreate)(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  FAKE_ENTER(cuMemPoolCreate);
  const bool on_device = properties->location.type == kLocationDevice;
  if (on_device && !IsDevice(properties->location.id))
    return kInvalidDevice;
  const bool pays = on_device && properties->allocType != kAllocationManaged;
  auto* const pool = new Pool{.device = pays ? properties->location.id : -1};
  CreatedPools().insert(pool);
  *handle = reinterpret_cast<CUmemoryPool>(pool);
  return kSuccess;
}

FAKE_HOOK(cuMemPoolDestroy)(CUmemoryPool handle) {
  FAKE_ENTER(cuMemPoolDestroy);
  Pool* const pool = AsPool(handle);
  if (pool == nullptr || pool->is_default)
    return kInvalidHandle;
  for (Device& device : TheDriver().devices) {
    if (device.current_pool == pool)
      device.current_pool = device.default_pool;
  }
  pool->destroyed = true;
  if (pool->allocations == 0)
    EndPool(pool);
  return kSuccess;
}

FAKE_HOOK(cuMemPoolTrimTo)(CUmemoryPool handle, size_t keep) {
  FAKE_ENTER(cuMemPoolTrimTo);
  Pool* const pool = AsPool(handle);
  if (pool == nullptr)
    return kInvalidHandle;
  Shrink(pool, keep);
  return kSuccess;
}

FAKE_CALL(cuMemPoolGetAttribute)(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  FAKE_ENTER(cuMemPoolGetAttribute);
  InvalidateCaptures();
  const Pool* const pool = AsPool(handle);
  if (pool == nullptr)
    return kInvalidHandle;
  if (attribute != kReleaseThreshold && attribute != kPoolReservedCurrent &&
      attribute != kPoolUsedCurrent) {
    return kInvalidValue;
  }
  *static_cast<uint64_t*>(value) = attribute == kReleaseThreshold      ? pool->threshold
                                   : attribute == kPoolReservedCurrent ? pool->reserved
                                                                       : pool->used;
  return kSuccess;
}

FAKE_HOOK(cuMemPoolSetAttribute)(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  FAKE_ENTER(cuMemPoolSetAttribute);
  Pool* const pool = AsPool(handle);
  if (pool == nullptr)
    return kInvalidHandle;
  if (attribute == kReleaseThreshold)
    pool->threshold = *static_cast<uint64_t*>(value);
  return kSuccess;
}

FAKE_CALL(cuDeviceGetMemPool)(CUmemoryPool* pool, CUdevice device) {
  FAKE_ENTER(cuDeviceGetMemPool);
  *pool =
      reinterpret_cast<CUmemoryPool>(TheDriver().devices[static_cast<size_t>(device)].current_pool);
  return kSuccess;
}

FAKE_CALL(cuDeviceGetDefaultMemPool)(CUmemoryPool* pool, CUdevice device) {
  FAKE_ENTER(cuDeviceGetDefaultMemPool);
  *pool =
      reinterpret_cast<CUmemoryPool>(TheDriver().devices[static_cast<size_t>(device)].default_pool);
  return kSuccess;
}

FAKE_OTHER(cuDeviceSetMemPool, CUdevice device, CUmemoryPool handle) {
  FAKE_ENTER(cuDeviceSetMemPool);
  Pool* const pool = AsPool(handle);
  if (pool == nullptr || pool->device != device)
    return kInvalidHandle;
  TheDriver().devices[static_cast<size_t>(device)].current_pool = pool;
  return kSuccess;
}

FAKE_HOOK(cuMemGetDefaultMemPool)
(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  FAKE_ENTER(cuMemGetDefaultMemPool);
  const bool on_device = location->type == kLocationDevice && type != kAllocationManaged;
  if (on_device && !IsDevice(location->id))
    return kInvalidDevice;
  *pool = reinterpret_cast<CUmemoryPool>(
      on_device ? TheDriver().devices[static_cast<size_t>(location->id)].default_pool
                : SharedPool(type));
  return kSuccess;
}

}  // namespace fake
