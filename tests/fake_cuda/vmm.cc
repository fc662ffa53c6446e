// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "fake.h"

// Physical memory apart from addresses: a handle's memory goes with its last reference and mapping.
namespace fake {
namespace {

constexpr int kFirstDescriptor = 1 << 20;

struct Physical {
  int device = 0;
  uint64_t size = 0;
  unsigned references = 1;
  unsigned mappings = 0;
  SharedId shared;
  bool imported = false;
};

struct Mapping {
  uint64_t size = 0;
  Physical* physical = nullptr;
  // Page tables of the host's memory, which the device pays for: as an H200 takes them.
  int tables_device = -1;
  uint64_t tables_bytes = 0;
};
constexpr uint64_t kMappedByATable = 1024 * kMiB;

std::set<Physical*>& Handles() {
  static auto* handles = new std::set<Physical*>;
  return *handles;
}

std::map<uint64_t, Mapping>& Mappings() {
  static auto* mappings = new std::map<uint64_t, Mapping>;
  return *mappings;
}

Physical* AsPhysical(CUmemGenericAllocationHandle handle) {
  auto* const physical = reinterpret_cast<Physical*>(handle);
  return Handles().count(physical) != 0 ? physical : nullptr;
}

void DropIfUnused(Physical* physical) {
  if (physical->references != 0 || physical->mappings != 0)
    return;
  LeaveShared(physical->shared, !physical->imported);
  if (!physical->imported && physical->device >= 0)
    Refund(physical->device, physical->size);
  Handles().erase(physical);
  delete physical;
}

}  // namespace

int DeviceOfMapping(uint64_t address) {
  auto mapping = Mappings().upper_bound(address);
  if (mapping == Mappings().begin())
    return -1;
  --mapping;
  return address - mapping->first < mapping->second.size ? mapping->second.physical->device : -1;
}

KindBytes PhysicalBytes(int device) {
  KindBytes sum;
  for (const Physical* physical : Handles()) {
    if (physical->device != device || physical->imported)
      continue;
    sum.bytes += physical->size;
    ++sum.count;
  }
  return sum;
}

FAKE_CALL(cuMemGetAllocationGranularity)(size_t* bytes, const CUmemAllocationProp*, int) {
  *bytes = kPage;
  return kSuccess;
}

FAKE_HOOK(cuMemCreate)
(CUmemGenericAllocationHandle* handle,
 size_t size,
 const CUmemAllocationProp* properties,
 unsigned long long) {
  FAKE_ENTER(cuMemCreate);
  const bool on_device = properties->location.type == kLocationDevice;
  if (size == 0 || size % kPage != 0 || (on_device && !IsDevice(properties->location.id)))
    return kInvalidValue;
  if (!on_device) {  // memory of the machine: no device pays
    if (getenv("VRAMSCOPE_FAKE_NO_HOST_NUMA") != nullptr)
      return kNotSupported;
    auto* const on_host = new Physical{.device = -1, .size = size};
    Handles().insert(on_host);
    *handle = reinterpret_cast<uintptr_t>(on_host);
    return kSuccess;
  }
  if (!Charge(properties->location.id, size))
    return kOutOfMemory;
  if (FailsLate()) {
    Refund(properties->location.id, size);
    return kOutOfMemory;
  }
  auto* const physical = new Physical{.device = properties->location.id, .size = size};
  Handles().insert(physical);
  *handle = reinterpret_cast<uintptr_t>(physical);
  return kSuccess;
}

// An object of several devices' memory has none of its own.
FAKE_HOOK(cuMulticastCreate)(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp*) {
  FAKE_ENTER(cuMulticastCreate);
  auto* const physical = new Physical{.device = -1, .size = 0};
  Handles().insert(physical);
  *handle = reinterpret_cast<uintptr_t>(physical);
  return kSuccess;
}

FAKE_HOOK(cuMulticastAddDevice)(CUmemGenericAllocationHandle handle, CUdevice device) {
  FAKE_ENTER(cuMulticastAddDevice);
  return AsPhysical(handle) != nullptr && IsDevice(device) ? kSuccess : kInvalidValue;
}

FAKE_HOOK(cuMulticastBindMem)
(CUmemGenericAllocationHandle handle,
 size_t,
 CUmemGenericAllocationHandle memory,
 size_t,
 size_t,
 unsigned long long) {
  FAKE_ENTER(cuMulticastBindMem);
  return AsPhysical(handle) != nullptr && AsPhysical(memory) != nullptr ? kSuccess : kInvalidValue;
}

FAKE_HOOK(cuMulticastUnbind)(CUmemGenericAllocationHandle handle, CUdevice, size_t, size_t) {
  FAKE_ENTER(cuMulticastUnbind);
  return AsPhysical(handle) != nullptr ? kSuccess : kInvalidValue;
}

FAKE_HOOK(cuMemRelease)(CUmemGenericAllocationHandle handle) {
  FAKE_ENTER(cuMemRelease);
  Physical* const physical = AsPhysical(handle);
  if (physical == nullptr || physical->references == 0)
    return kInvalidValue;
  --physical->references;
  DropIfUnused(physical);
  return kSuccess;
}

// The fake driver's descriptors are numbers with the same meaning in every process.
FAKE_HOOK(cuMemExportToShareableHandle)
(void* os_handle,
 CUmemGenericAllocationHandle handle,
 CUmemAllocationHandleType type,
 unsigned long long) {
  FAKE_ENTER(cuMemExportToShareableHandle);
  Physical* const physical = AsPhysical(handle);
  if (physical == nullptr || physical->references == 0)
    return kInvalidValue;
  if (physical->shared.slot < 0)
    physical->shared = BeginSharing(physical->device, physical->size, physical->size);
  if (type == kHandleFabric) {
    *static_cast<CUmemFabricHandle*>(os_handle) = {};
    memcpy(os_handle, &physical->shared, sizeof physical->shared);
  } else {
    *static_cast<int*>(os_handle) =
        kFirstDescriptor + physical->device * FAKE_MAX_SHARED + physical->shared.slot;
  }
  return kSuccess;
}

FAKE_HOOK(cuMemImportFromShareableHandle)
(CUmemGenericAllocationHandle* handle, void* os_handle, CUmemAllocationHandleType type) {
  FAKE_ENTER(cuMemImportFromShareableHandle);
  SharedId id;
  if (type == kHandleFabric) {
    memcpy(static_cast<void*>(&id), os_handle, sizeof id);
  } else {
    const auto number = static_cast<int>(reinterpret_cast<uintptr_t>(os_handle)) - kFirstDescriptor;
    id.device = number / FAKE_MAX_SHARED;
    id.slot = number % FAKE_MAX_SHARED;
    id.nonce = TheDriver().books->devices[id.device].shared[id.slot].nonce;
  }
  const uint64_t bytes = HoldShared(id);
  if (bytes == 0)
    return kInvalidHandle;
  auto* const physical =
      new Physical{.device = id.device, .size = bytes, .shared = id, .imported = true};
  Handles().insert(physical);
  *handle = reinterpret_cast<uintptr_t>(physical);
  return kSuccess;
}

FAKE_CALL(cuMemGetAllocationPropertiesFromHandle)
(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  FAKE_ENTER(cuMemGetAllocationPropertiesFromHandle);
  const Physical* const physical = AsPhysical(handle);
  if (physical == nullptr)
    return kInvalidValue;
  *properties = {};
  properties->type = 1;
  properties->location = {kLocationDevice, physical->device};
  return kSuccess;
}

FAKE_HOOK(cuMemRetainAllocationHandle)(CUmemGenericAllocationHandle* handle, void* address) {
  FAKE_ENTER(cuMemRetainAllocationHandle);
  const auto found = Mappings().find(reinterpret_cast<uintptr_t>(address));
  if (found == Mappings().end())
    return kInvalidValue;
  ++found->second.physical->references;
  *handle = reinterpret_cast<uintptr_t>(found->second.physical);
  return kSuccess;
}

FAKE_HOOK(cuMemMap)
(CUdeviceptr address,
 size_t size,
 size_t,
 CUmemGenericAllocationHandle handle,
 unsigned long long) {
  FAKE_ENTER(cuMemMap);
  Physical* const physical = AsPhysical(handle);
  if (physical == nullptr || Mappings().count(address) != 0)
    return kInvalidValue;
  ++physical->mappings;
  Mappings()[address] = {.size = size, .physical = physical};
  return kSuccess;
}

// Whole mappings, one behind the other.
FAKE_HOOK(cuMemUnmap)(CUdeviceptr address, size_t size) {
  FAKE_ENTER(cuMemUnmap);
  const CUdeviceptr end = address + size;
  CUdeviceptr at = address;
  for (auto next = Mappings().find(at); next != Mappings().end() && at < end;
       next = Mappings().find(at))
    at += next->second.size;
  if (at != end || size == 0)
    return kInvalidValue;
  for (auto mapping = Mappings().find(address);
       mapping != Mappings().end() && mapping->first < end;) {
    Physical* const physical = mapping->second.physical;
    if (mapping->second.tables_bytes != 0)
      Refund(mapping->second.tables_device, mapping->second.tables_bytes);
    mapping = Mappings().erase(mapping);
    --physical->mappings;
    DropIfUnused(physical);
  }
  return kSuccess;
}

FAKE_HOOK(cuMemAddressReserve)
(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr, unsigned long long) {
  FAKE_ENTER(cuMemAddressReserve);
  *address = TheDriver().addresses.Take(size, alignment > kPage ? alignment : kPage);
  return *address != 0 ? kSuccess : kOutOfMemory;
}

FAKE_HOOK(cuMemAddressFree)(CUdeviceptr address, size_t size) {
  FAKE_ENTER(cuMemAddressFree);
  TheDriver().addresses.Give(address, size);
  return kSuccess;
}

FAKE_CALL(cuMemSetAccess)
(CUdeviceptr address, size_t size, const CUmemAccessDesc* access, size_t count) {
  FAKE_ENTER(cuMemSetAccess);
  const auto mapping = Mappings().find(address);
  if (mapping == Mappings().end() || mapping->second.physical->device >= 0 || count == 0 ||
      mapping->second.tables_bytes != 0)
    return kSuccess;
  const uint64_t tables = RoundUp(size, kMappedByATable) / kMappedByATable * kPage;
  if (!Charge(access[0].location.id, tables))
    return kOutOfMemory;
  mapping->second.tables_device = access[0].location.id;
  mapping->second.tables_bytes = tables;
  return kSuccess;
}

}  // namespace fake
