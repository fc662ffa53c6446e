// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "fake.h"

// Linear memory, pinned host memory, arrays, and memory of other processes.
namespace fake {
namespace {

constexpr uint64_t kSlabLimit = kPage - 1;  // up to here requests share 2 MiB
constexpr uint64_t kAlignment = 512;
constexpr uint64_t kPitch = 512;

uint64_t ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const uint64_t element = shape.Format == 0x20 ? 4 : shape.Format == 0x10 ? 2 : 1;
  const uint64_t rows =
      (shape.Height != 0 ? shape.Height : 1) * (shape.Depth != 0 ? shape.Depth : 1);
  return RoundUp(shape.Width * element * shape.NumChannels, 128) * rows;
}

// Whole pages, shared with nothing.
CUresult AllocatePages(Context* context,
                       uint64_t size,
                       BlockKind kind,
                       AddressSpace* space,
                       uint64_t* address) {
  const uint64_t bytes = RoundUp(size, kPage);
  if (bytes < size || !Charge(context->device, bytes))
    return kOutOfMemory;
  *address = FailsLate() ? 0 : space->Take(bytes, kPage);
  if (*address == 0) {
    Refund(context->device, bytes);
    return kOutOfMemory;
  }
  TheDriver().blocks[*address] = {size, bytes, 0, context, nullptr, kind, context->device};
  return kSuccess;
}

CUresult CreateArray(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  const uint64_t bytes = ArrayBytes(shape);
  uint64_t address = 0;
  if (bytes == 0)
    return kInvalidValue;
  const CUresult result =
      AllocatePages(context, bytes, BlockKind::kArray, &TheDriver().addresses, &address);
  if (result == kSuccess)
    *array = reinterpret_cast<CUarray>(address);
  return result;
}

CUresult AllocateHost(void** memory, size_t size, HostKind kind) {
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  if (size == 0)
    return kInvalidValue;
  if (size > kLargestHostBytes || posix_memalign(memory, 4096, size) != 0)
    return kOutOfMemory;
  TheDriver().host_blocks[reinterpret_cast<uintptr_t>(*memory)] = {size, kind, context};
  return kSuccess;
}

CUresult FreeHost(uint64_t address, HostKind kind) {
  auto& blocks = TheDriver().host_blocks;
  const auto found = blocks.find(address);
  if (found == blocks.end() || found->second.kind != kind)
    return kInvalidValue;
  if (kind != HostKind::kRegistered)
    free(reinterpret_cast<void*>(address));
  EndResidency(&found->second);
  blocks.erase(found);
  return kSuccess;
}

}  // namespace

CUresult AllocateLinear(Context* context, uint64_t size, AddressSpace* space, uint64_t* address) {
  Driver& driver = TheDriver();
  if (size == 0)
    return kInvalidValue;
  if (size > kSlabLimit)
    return AllocatePages(context, size, BlockKind::kLinear, space, address);
  const uint64_t bytes = RoundUp(size, kAlignment);
  for (auto& [begin, slab] : context->slabs) {
    if (space != &driver.SpaceOf(begin))
      continue;
    *address = slab.space.Take(bytes, kAlignment);
    if (*address == 0)
      continue;
    slab.used += bytes;
    driver.blocks[*address] = {size,           0, begin, context, nullptr, BlockKind::kLinear,
                               context->device};
    return kSuccess;
  }
  if (!Charge(context->device, kPage))
    return kOutOfMemory;
  const uint64_t begin = space->Take(kPage, kPage);
  context->slabs.emplace(begin, Slab{0, AddressSpace(begin, begin + kPage)});
  return AllocateLinear(context, size, space, address);
}

CUresult FreeLinear(uint64_t address, BlockKind kind) {
  Driver& driver = TheDriver();
  const auto found = driver.blocks.find(address);
  if (found == driver.blocks.end() || found->second.kind != kind)
    return kInvalidValue;
  const Block block = found->second;
  driver.blocks.erase(found);
  LeaveShared(block.shared, block.kind != BlockKind::kImported);
  AddressSpace& space = driver.SpaceOf(address);
  if (block.slab == 0) {
    Refund(block.device, block.charged);
    space.Give(address, block.charged);
    return kSuccess;
  }
  Slab& slab = block.context->slabs.at(block.slab);
  const uint64_t bytes = RoundUp(block.size, kAlignment);
  slab.space.Give(address, bytes);
  slab.used -= bytes;
  if (slab.used == 0) {
    Refund(block.device, kPage);
    space.Give(block.slab, kPage);
    block.context->slabs.erase(block.slab);
  }
  return kSuccess;
}

FAKE_HOOK(cuMemAlloc_v2)(CUdeviceptr* address, size_t size) {
  FAKE_ENTER(cuMemAlloc_v2);
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  uint64_t at = 0;
  const CUresult result = AllocateLinear(context, size, &TheDriver().addresses, &at);
  if (result == kSuccess)
    *address = at;
  return result;
}

FAKE_HOOK(cuMemAlloc)(CUdeviceptr_v1* address, unsigned int size) {
  FAKE_ENTER(cuMemAlloc);
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  uint64_t at = 0;
  const CUresult result = AllocateLinear(context, size, &TheDriver().low_addresses, &at);
  if (result == kSuccess)
    *address = static_cast<CUdeviceptr_v1>(at);
  return result;
}

FAKE_HOOK(cuMemAllocPitch_v2)
(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned int) {
  FAKE_ENTER(cuMemAllocPitch_v2);
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  uint64_t at = 0;
  *pitch = RoundUp(width, kPitch);
  const CUresult result = AllocateLinear(context, *pitch * height, &TheDriver().addresses, &at);
  if (result == kSuccess)
    *address = at;
  return result;
}

FAKE_HOOK(cuMemFree_v2)(CUdeviceptr address) {
  FAKE_ENTER(cuMemFree_v2);
  if (address == 0)
    return kSuccess;
  const auto& blocks = TheDriver().blocks;
  const auto found = blocks.find(address);
  if (found == blocks.end()) {
    FinishTouching();
    return FreeHost(address, HostKind::kManaged);
  }
  if (found->second.kind != BlockKind::kLinear && found->second.kind != BlockKind::kPool)
    return kInvalidValue;
  SynchronisePools();
  if (found->second.kind == BlockKind::kLinear)
    return FreeLinear(address);
  FreePoolBlock(address);
  return kSuccess;
}

FAKE_HOOK(cuMemFree)(CUdeviceptr_v1 address) {
  FAKE_ENTER(cuMemFree);
  return FreeLinear(address);
}

void EndHostBlocksOf(const Context* context) {
  auto& blocks = TheDriver().host_blocks;
  for (auto block = blocks.begin(); block != blocks.end();) {
    if (block->second.context != context) {
      ++block;
      continue;
    }
    if (block->second.kind != HostKind::kRegistered)
      free(reinterpret_cast<void*>(block->first));
    EndResidency(&block->second);
    block = blocks.erase(block);
  }
}

FAKE_CALL(cuMemGetAddressRange_v2)(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  FAKE_ENTER(cuMemGetAddressRange_v2);
  const auto found = TheDriver().blocks.find(address);
  if (found == TheDriver().blocks.end())
    return kNotFoundError;
  if (base != nullptr)
    *base = address;
  if (size != nullptr)
    *size = found->second.size;
  return kSuccess;
}

FAKE_CALL(cuPointerGetAttribute)(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  FAKE_ENTER(cuPointerGetAttribute);
  const auto& blocks = TheDriver().blocks;
  auto found = blocks.upper_bound(address);
  if (attribute != kPointerDevice && attribute != kPointerPool)
    return kInvalidValue;
  const int device = DeviceOfMapping(address);
  if (device >= 0 && attribute == kPointerDevice) {
    *static_cast<int*>(data) = device;
    return kSuccess;
  }
  if (found == blocks.begin())
    return kInvalidValue;
  --found;
  if (address - found->first >= found->second.size)
    return kInvalidValue;
  if (attribute == kPointerPool)
    *static_cast<void**>(data) = found->second.pool;
  else
    *static_cast<int*>(data) = found->second.device;
  return kSuccess;
}

FAKE_CALL(cuPointerGetAttributes)
(unsigned int count, CUpointer_attribute* attributes, void** data, CUdeviceptr address) {
  for (unsigned int i = 0; i < count; ++i)
    cuPointerGetAttribute(data[i], attributes[i], address);
  return kSuccess;
}

FAKE_HOOK(cuMemAllocHost_v2)(void** memory, size_t size) {
  FAKE_ENTER(cuMemAllocHost_v2);
  return AllocateHost(memory, size, HostKind::kPinned);
}

FAKE_HOOK(cuMemHostAlloc)(void** memory, size_t size, unsigned int) {
  FAKE_ENTER(cuMemHostAlloc);
  return AllocateHost(memory, size, HostKind::kPinned);
}

FAKE_HOOK(cuMemFreeHost)(void* memory) {
  FAKE_ENTER(cuMemFreeHost);
  if (memory == nullptr)
    return kSuccess;
  return FreeHost(reinterpret_cast<uintptr_t>(memory), HostKind::kPinned);
}

FAKE_HOOK(cuMemHostRegister_v2)(void* memory, size_t size, unsigned int) {
  FAKE_ENTER(cuMemHostRegister_v2);
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (size == 0 || memory == nullptr)
    return kInvalidValue;
  const bool added =
      TheDriver()
          .host_blocks.emplace(address, HostBlock{size, HostKind::kRegistered, context})
          .second;
  return added ? kSuccess : kAlreadyRegistered;
}

FAKE_HOOK(cuMemHostUnregister)(void* memory) {
  FAKE_ENTER(cuMemHostUnregister);
  return FreeHost(reinterpret_cast<uintptr_t>(memory), HostKind::kRegistered);
}

FAKE_HOOK(cuArrayCreate_v2)(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* shape) {
  FAKE_ENTER(cuArrayCreate_v2);
  return CreateArray(array, {.Width = shape->Width,
                             .Height = shape->Height,
                             .Depth = 0,
                             .Format = shape->Format,
                             .NumChannels = shape->NumChannels,
                             .Flags = 0});
}

FAKE_HOOK(cuArray3DCreate_v2)(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  FAKE_ENTER(cuArray3DCreate_v2);
  return CreateArray(array, *shape);
}

FAKE_HOOK(cuArrayDestroy)(CUarray array) {
  FAKE_ENTER(cuArrayDestroy);
  return FreeLinear(reinterpret_cast<uintptr_t>(array), BlockKind::kArray);
}

FAKE_HOOK(cuIpcGetMemHandle)(CUipcMemHandle* handle, CUdeviceptr address) {
  FAKE_ENTER(cuIpcGetMemHandle);
  const auto found = TheDriver().blocks.find(address);
  if (found == TheDriver().blocks.end())
    return kInvalidValue;
  Block& block = found->second;
  SharedId content = block.shared;
  content.size = block.size;
  if (block.charged != 0 && block.shared.slot < 0)
    content = block.shared = BeginSharing(block.device, block.charged, block.size);
  *handle = {};
  memcpy(handle, &content, sizeof content);
  return kSuccess;
}

// The importer is charged nothing.
FAKE_HOOK(cuIpcOpenMemHandle_v2)(CUdeviceptr* address, CUipcMemHandle handle, unsigned int) {
  FAKE_ENTER(cuIpcOpenMemHandle_v2);
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  SharedId content{};
  memcpy(static_cast<void*>(&content), &handle, sizeof content);
  if (content.slot >= 0 && HoldShared(content) == 0)
    return kInvalidHandle;
  *address = TheDriver().addresses.Take(RoundUp(content.size, kPage), kPage);
  TheDriver().blocks[*address] = {
      content.size, 0, 0, context, nullptr, BlockKind::kImported, context->device, content};
  return kSuccess;
}

FAKE_HOOK(cuIpcCloseMemHandle)(CUdeviceptr address) {
  FAKE_ENTER(cuIpcCloseMemHandle);
  return FreeLinear(address, BlockKind::kImported);
}

// There is nothing behind device addresses: copies read zeros.
FAKE_HOOK(cuMemcpyDtoH_v2)(void* target, CUdeviceptr, size_t bytes) {
  FAKE_ENTER(cuMemcpyDtoH_v2);
  SynchronisePools();
  memset(target, 0, bytes);
  return kSuccess;
}

}  // namespace fake
