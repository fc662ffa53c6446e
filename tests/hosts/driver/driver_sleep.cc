// SPDX-License-Identifier: Apache-2.0
// An engine that sleeps, by torch_memory_saver's order of calls: PyTorch's segments are physical
// memory mapped at reserved addresses, which goes and comes back below live blocks. With an
// argument it is killed while it sleeps.
#include <vramscope/annotate.h>

#include <csignal>

#include "steps.h"

// PyTorch's report of a block: defined by the probe, or undefined.
extern "C" __attribute__((weak)) void ReportBlock(void*, int64_t, size_t, size_t, uint16_t) __asm__(
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

// saving_library.c
extern "C" {
void tms_set_interesting_region(bool in_region);
void tms_set_current_tag(const char* tag);
int saver_map(void* map, CUdeviceptr address, size_t size, CUmemGenericAllocationHandle handle);
}

namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct Segment {
  size_t size = 0;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
};

void Report(CUdeviceptr address, int64_t bytes) {
  constexpr uint16_t kCuda = 1;
  if (ReportBlock != nullptr)
    ReportBlock(reinterpret_cast<void*>(address), bytes, 0, 0, kCuda);
}

}  // namespace

int main(int argc, char**) {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAddressReserve);
  DRIVER_HOOK(driver, cuMemAddressFree);
  DRIVER_HOOK(driver, cuMemCreate);
  DRIVER_HOOK(driver, cuMemMap);
  DRIVER_HOOK(driver, cuMemUnmap);
  DRIVER_HOOK(driver, cuMemRelease);
  const auto resume = [&](Segment& segment) {
    CUmemAllocationProp properties{};
    properties.type = 1;
    properties.location = {kLocationDevice, 0};
    CHECK(cuMemCreate(&segment.handle, segment.size, &properties, 0));
    CHECK(saver_map(reinterpret_cast<void*>(cuMemMap), segment.address, segment.size,
                    segment.handle));
  };
  const auto pause = [&](Segment& segment) {
    CHECK(cuMemUnmap(segment.address, segment.size));
    CHECK(cuMemRelease(segment.handle));
  };
  const auto allocate = [&](size_t size, const char* tag) {
    Segment segment{size};
    CHECK(cuMemAddressReserve(&segment.address, size, 0, 0, 0));
    tms_set_interesting_region(true);
    tms_set_current_tag(tag);
    resume(segment);
    tms_set_interesting_region(false);
    return segment;
  };

  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  Segment weights = allocate(64 * kMiB, "weights");
  Segment cache = allocate(256 * kMiB, "kv_cache");
  {
    VRAMSCOPE_SCOPE("model/parameter");
    for (size_t i = 0; i < 6; ++i)
      Report(weights.address + i * 10 * kMiB, 10 * kMiB);
  }
  Report(cache.address, 256 * kMiB);
  Step("awake");
  pause(weights);
  pause(cache);
  Step("asleep");
  resume(weights);
  resume(cache);
  Step("awake-again");
  pause(cache);
  Step("half");
  pause(weights);
  // Its allocator gets no notice: one block is freed, and another is allocated.
  Report(weights.address + 50 * kMiB, -10 * static_cast<int64_t>(kMiB));
  Report(weights.address + 50 * kMiB, 4 * kMiB);
  Step("asleep-again");
  if (argc > 1)
    raise(SIGKILL);
  resume(weights);
  resume(cache);
  Step("at-last");
  pause(weights);
  CHECK(cuMemAddressFree(weights.address, weights.size));
  return 0;
}
