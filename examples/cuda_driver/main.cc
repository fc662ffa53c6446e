// SPDX-License-Identifier: Apache-2.0
// Takes device memory in each way that the CUDA driver API offers, uses it, and gives it back. A
// look at its recording shows one row for each kind:
//
//   vramscope run -- build/bin/example_cuda_driver
#include <vramscope/annotate.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "driver.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Writes its index, times three, to each element. PTX 6.0 runs on every GPU since Pascal.
constexpr char kPtx[] = R"(
.version 6.0
.target sm_60
.address_size 64
.visible .entry fill(.param .u64 target, .param .u32 count) {
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  ld.param.u64 %d1, [target];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  mul.lo.u32 %r6, %r5, 3;
  mul.wide.u32 %d2, %r5, 4;
  add.s64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r6;
done:
  ret;
}
)";

struct Options {
  double hold_seconds = 1.0;
  bool managed = false;
  bool verify = true;
};

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--managed") == 0) {
      options.managed = true;
    } else if (std::strcmp(argv[i], "--no-verify") == 0) {
      options.verify = false;
    } else if (std::strcmp(argv[i], "--hold") == 0 && i + 1 < argc) {
      options.hold_seconds = std::atof(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: %s [--hold SECONDS] [--managed] [--no-verify]\n", argv[0]);
      std::exit(2);
    }
  }
  return options;
}

// A piece of address space backed by one physical handle.
struct Mapping {
  driver::DevicePointer address = 0;
  driver::PhysicalHandle handle = 0;
  size_t bytes = 0;
};

Mapping MapPhysicalMemory(const driver::Api& cu, driver::Device device, size_t bytes) {
  driver::AllocationProperties properties = {};
  properties.type = 1;
  properties.location = {1, device};
  size_t granularity = 0;
  driver::Check(cu.GetGranularity(&granularity, &properties, 0), "cuMemGetAllocationGranularity");

  Mapping mapping;
  mapping.bytes = (bytes + granularity - 1) / granularity * granularity;
  driver::Check(cu.AddressReserve(&mapping.address, mapping.bytes, 0, 0, 0), "cuMemAddressReserve");
  driver::Check(cu.MemCreate(&mapping.handle, mapping.bytes, &properties, 0), "cuMemCreate");
  driver::Check(cu.MemMap(mapping.address, mapping.bytes, 0, mapping.handle, 0), "cuMemMap");
  const driver::AccessDescriptor access = {{1, device}, 3};
  driver::Check(cu.MemSetAccess(mapping.address, mapping.bytes, &access, 1), "cuMemSetAccess");
  return mapping;
}

void Unmap(const driver::Api& cu, const Mapping& mapping) {
  driver::Check(cu.MemUnmap(mapping.address, mapping.bytes), "cuMemUnmap");
  driver::Check(cu.MemRelease(mapping.handle), "cuMemRelease");
  driver::Check(cu.AddressFree(mapping.address, mapping.bytes), "cuMemAddressFree");
}

// Fills `bytes` at `target` on the device and compares a few elements on the host.
bool FillAndVerify(const driver::Api& cu,
                   driver::Function fill,
                   driver::Stream stream,
                   driver::DevicePointer target,
                   size_t bytes,
                   bool verify) {
  unsigned count = static_cast<unsigned>(bytes / sizeof(uint32_t));
  void* arguments[] = {&target, &count};
  driver::Check(
      cu.LaunchKernel(fill, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr),
      "cuLaunchKernel");
  driver::Check(cu.StreamSynchronize(stream), "cuStreamSynchronize");
  for (unsigned index : {0u, count / 2, count - 1}) {
    uint32_t value = 0;
    driver::Check(cu.MemcpyDtoH(&value, target + index * sizeof(uint32_t), sizeof(value)),
                  "cuMemcpyDtoH");
    if (verify && value != index * 3) {
      std::fprintf(stderr, "example_cuda_driver: element %u is %u, not %u\n", index, value,
                   index * 3);
      return false;
    }
  }
  return true;
}

void Print(const char* kind, size_t bytes) {
  std::printf("%-28s %12zu bytes\n", kind, bytes);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  const driver::Api& cu = driver::Load();
  driver::Check(cu.Init(0), "cuInit");
  driver::Device device = 0;
  driver::Check(cu.DeviceGet(&device, 0), "cuDeviceGet");
  char name[128] = "";
  driver::Check(cu.DeviceGetName(name, sizeof(name), device), "cuDeviceGetName");
  driver::Context context = nullptr;
  driver::Check(cu.PrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  driver::Check(cu.CtxSetCurrent(context), "cuCtxSetCurrent");
  std::printf("%s\n", name);

  driver::Module module = nullptr;
  driver::Check(cu.ModuleLoadData(&module, kPtx), "cuModuleLoadData");
  driver::Function fill = nullptr;
  driver::Check(cu.ModuleGetFunction(&fill, module, "fill"), "cuModuleGetFunction");
  driver::Stream stream = nullptr;
  driver::Check(cu.StreamCreate(&stream, 0), "cuStreamCreate");
  vramscope_annotate_mark("ready");

  const size_t linear_bytes = 96 * kMiB;
  driver::DevicePointer linear = 0;
  driver::Check(cu.MemAlloc(&linear, linear_bytes), "cuMemAlloc");
  Print("cuMemAlloc", linear_bytes);

  // Requests of up to 1 MiB share slabs of 2 MiB: the driver takes more than is asked for.
  std::vector<driver::DevicePointer> small(100);
  for (driver::DevicePointer& address : small) {
    driver::Check(cu.MemAlloc(&address, 24 * 1024), "cuMemAlloc of 24 KiB");
  }
  Print("cuMemAlloc, 100 small", small.size() * 24 * 1024);

  driver::DevicePointer pitched = 0;
  size_t pitch = 0;
  driver::Check(cu.MemAllocPitch(&pitched, &pitch, 1000 * sizeof(float), 4096, 4),
                "cuMemAllocPitch");
  Print("cuMemAllocPitch", pitch * 4096);

  const Mapping mapping = MapPhysicalMemory(cu, device, 64 * kMiB);
  Print("cuMemCreate and cuMemMap", mapping.bytes);

  const size_t pooled_bytes = 48 * kMiB;
  driver::DevicePointer pooled = 0;
  driver::Check(cu.MemAllocAsync(&pooled, pooled_bytes, stream), "cuMemAllocAsync");
  Print("cuMemAllocAsync", pooled_bytes);

  const driver::ArrayDescriptor shape = {2048, 2048, 0x20, 1};
  driver::Array array = nullptr;
  driver::Check(cu.ArrayCreate(&array, &shape), "cuArrayCreate");
  Print("cuArrayCreate", shape.width * shape.height * sizeof(float));

  void* pinned = nullptr;
  driver::Check(cu.MemHostAlloc(&pinned, 32 * kMiB, 0), "cuMemHostAlloc");
  Print("cuMemHostAlloc (host)", 32 * kMiB);

  driver::DevicePointer managed = 0;
  if (options.managed) {
    driver::Check(cu.MemAllocManaged(&managed, 16 * kMiB, 1), "cuMemAllocManaged");
    Print("cuMemAllocManaged", 16 * kMiB);
  }

  bool right = FillAndVerify(cu, fill, stream, linear, linear_bytes, options.verify);
  right &= FillAndVerify(cu, fill, stream, mapping.address, mapping.bytes, options.verify);
  right &= FillAndVerify(cu, fill, stream, pooled, pooled_bytes, options.verify);
  if (managed != 0) {
    right &= FillAndVerify(cu, fill, stream, managed, 16 * kMiB, options.verify);
  }

  vramscope_annotate_mark("everything live");
  std::this_thread::sleep_for(std::chrono::duration<double>(options.hold_seconds));

  if (managed != 0) {
    driver::Check(cu.MemFree(managed), "cuMemFree");
  }
  driver::Check(cu.MemFreeHost(pinned), "cuMemFreeHost");
  driver::Check(cu.ArrayDestroy(array), "cuArrayDestroy");
  driver::Check(cu.MemFreeAsync(pooled, stream), "cuMemFreeAsync");
  driver::Check(cu.StreamSynchronize(stream), "cuStreamSynchronize");
  Unmap(cu, mapping);
  driver::Check(cu.MemFree(pitched), "cuMemFree");
  for (driver::DevicePointer address : small) {
    driver::Check(cu.MemFree(address), "cuMemFree");
  }
  driver::Check(cu.MemFree(linear), "cuMemFree");
  vramscope_annotate_mark("everything freed");
  std::this_thread::sleep_for(std::chrono::duration<double>(options.hold_seconds / 4));

  driver::Check(cu.StreamDestroy(stream), "cuStreamDestroy");
  driver::Check(cu.ModuleUnload(module), "cuModuleUnload");
  driver::Check(cu.PrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  std::printf("%s\n", right ? "all values right" : "wrong values");
  return right ? 0 : 1;
}
