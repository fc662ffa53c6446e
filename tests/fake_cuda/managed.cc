// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <utility>

#include "fake.h"

// Managed memory: on the device where it was touched, in chunks that the UVM driver takes and
// keeps.
namespace fake {
namespace {

constexpr uint64_t kUvmStep = 64 * kMiB;
constexpr int kOnDevice = 1;

void ChargeUvm(Device* device, int64_t bytes) {
  device->uvm.used += static_cast<uint64_t>(bytes);
  __atomic_fetch_add(&device->row->device_bytes, bytes, __ATOMIC_RELAXED);
}

void Leave(HostBlock* block) {
  TheDriver().devices[static_cast<size_t>(block->device)].uvm.spare += block->resident;
  block->resident = 0;
}

// A device that has no room leaves it where it is. A chunk is the UVM driver's own.
void MakeResident(HostBlock* block, int number) {
  const uint64_t bytes = RoundUp(block->size, kPage);
  if (block->resident == bytes && block->device == number)
    return;
  Leave(block);
  Device& device = TheDriver().devices[static_cast<size_t>(number)];
  const uint64_t limit = device.books->total_bytes - device.books->reserved_bytes;
  const uint64_t wanted = bytes + kPage;
  const uint64_t more =
      wanted > device.uvm.spare ? RoundUp(wanted - device.uvm.spare, kUvmStep) : 0;
  if (FakeBooksDeviceUsed(device.books) + more > limit)
    return;
  ChargeUvm(&device, static_cast<int64_t>(more));
  device.uvm.spare += more - bytes;
  block->device = number;
  block->resident = bytes;
}

// Of no size: all of it moves.
CUresult Prefetch(CUdeviceptr address, bool to_device, int number) {
  const auto found = TheDriver().host_blocks.find(address);
  if (found == TheDriver().host_blocks.end() || found->second.kind != HostKind::kManaged ||
      (to_device && !IsDevice(number)))
    return kInvalidValue;
  if (to_device)
    MakeResident(&found->second, number);
  else
    Leave(&found->second);
  return kSuccess;
}

}  // namespace

void LaunchTouching(int device) {
  TheDriver().devices[static_cast<size_t>(device)].uvm.touches = true;
}

void FinishTouching() {
  Driver& driver = TheDriver();
  for (size_t i = 0; i < driver.devices.size(); ++i) {
    if (!std::exchange(driver.devices[i].uvm.touches, false))
      continue;
    for (auto& [address, block] : driver.host_blocks) {
      if (block.kind == HostKind::kManaged)
        MakeResident(&block, static_cast<int>(i));
    }
  }
}

void EndResidency(HostBlock* block) {
  if (block->resident == 0)
    return;
  ChargeUvm(&TheDriver().devices[static_cast<size_t>(block->device)],
            -static_cast<int64_t>(block->resident));
  block->resident = 0;
}

FAKE_HOOK(cuMemAllocManaged)(CUdeviceptr* address, size_t size, unsigned int) {
  FAKE_ENTER(cuMemAllocManaged);
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  void* memory = nullptr;
  if (size == 0)
    return kInvalidValue;
  if (size > kLargestHostBytes || posix_memalign(&memory, 4096, size) != 0)
    return kOutOfMemory;
  *address = reinterpret_cast<uintptr_t>(memory);
  TheDriver().host_blocks[*address] = {size, HostKind::kManaged, context, context->device, 0};
  return kSuccess;
}

FAKE_HOOK(cuMemPrefetchAsync)(CUdeviceptr address, size_t, CUdevice device, CUstream) {
  FAKE_ENTER(cuMemPrefetchAsync);
  return Prefetch(address, device >= 0, device);
}

FAKE_HOOK(cuMemPrefetchAsync_v2)
(CUdeviceptr address, size_t, CUmemLocation to, unsigned int, CUstream) {
  FAKE_ENTER(cuMemPrefetchAsync_v2);
  return Prefetch(address, to.type == kOnDevice, to.id);
}

FAKE_HOOK(cuMemAdvise_v2)(CUdeviceptr, size_t, CUmem_advise, CUmemLocation) {
  FAKE_ENTER(cuMemAdvise_v2);
  return kSuccess;
}

}  // namespace fake
