// SPDX-License-Identifier: Apache-2.0
#include "truth.h"

#include "fake.h"

namespace fake {
namespace {

void CountBlocks(Truth* truth) {
  for (const auto& [address, block] : TheDriver().blocks) {
    DeviceTruth& device = truth->devices[block.device];
    switch (block.kind) {
      case BlockKind::kLinear:
        device.linear_asked += block.size;
        device.linear_charged += block.charged;
        ++device.linear_count;
        break;
      case BlockKind::kArray:
        device.array_charged += block.charged;
        ++device.array_count;
        break;
      case BlockKind::kImported:
        ++device.imported_count;
        break;
      case BlockKind::kPool:
      case BlockKind::kGraph:
        break;
    }
  }
}

void CountHostBlocks(Truth* truth) {
  for (const auto& [address, block] : TheDriver().host_blocks) {
    const auto add = [&](uint64_t& bytes, uint64_t& count) {
      bytes += block.size;
      ++count;
    };
    switch (block.kind) {
      case HostKind::kPinned:
        add(truth->pinned_bytes, truth->pinned_count);
        break;
      case HostKind::kRegistered:
        add(truth->registered_bytes, truth->registered_count);
        break;
      case HostKind::kManaged:
        add(truth->managed_bytes, truth->managed_count);
        break;
    }
  }
}

void CountPool(Truth* truth, const Pool* pool) {
  truth->devices[pool->device].pool_reserved += pool->reserved;
  if (!pool->destroyed && truth->pool_count < kMaxTruthPools) {
    truth->pools[truth->pool_count++] = {reinterpret_cast<uintptr_t>(pool), pool->device,
                                         pool->reserved, pool->used, pool->allocations};
  }
}

}  // namespace

FAKE_EXPORT TakeTruthFunction fakeTakeTruth;
FAKE_EXPORT void fakeTakeTruth(Truth* truth) {
  *truth = {};
  Driver& driver = TheDriver();
  const std::lock_guard lock(driver.mutex);
  if (driver.init_pid != static_cast<uint32_t>(getpid()))
    return;
  truth->device_count = static_cast<uint32_t>(driver.devices.size());
  for (size_t i = 0; i < driver.devices.size(); ++i) {
    DeviceTruth& device = truth->devices[i];
    const Device& known = driver.devices[i];
    device.used = FakeBooksDeviceUsed(known.books);
    device.process_bytes = known.row->process_bytes;
    device.device_bytes = known.row->device_bytes;
    device.graph_reserved = known.graph_reserved;
    device.graph_used = known.graph_used;
    device.uvm = known.uvm.used;
    device.driver_bytes = kInitDeviceBytes;
    if (known.keeps_primary)
      device.driver_bytes +=
          kContextBytes + kContextDeviceBytes + known.kept_local_bytes - kFreeLocalBytes;
    const KindBytes physical = PhysicalBytes(static_cast<int>(i));
    device.physical_bytes = physical.bytes;
    device.physical_count = physical.count;
    CountPool(truth, known.default_pool);
  }
  for (const Context* context : driver.contexts) {
    DeviceTruth& device = truth->devices[context->device];
    ++device.contexts;
    device.driver_bytes += kContextBytes + kContextDeviceBytes + context->charged;
    device.linear_charged += context->slabs.size() * kPage;
  }
  for (const Pool* pool : CreatedPools())
    CountPool(truth, pool);
  CountBlocks(truth);
  CountHostBlocks(truth);
  for (const Stream* stream : driver.streams)
    truth->capturing += stream->capture != nullptr ? 1u : 0u;
}

FAKE_EXPORT FailNextFunction fakeFailNext;
FAKE_EXPORT void fakeFailNext(uint64_t calls_before_it, bool late) {
  const std::lock_guard lock(TheDriver().mutex);
  TheDriver().fail_after = calls_before_it;
  TheDriver().fail_late = late;
  TheDriver().failing_late = false;
}

}  // namespace fake
