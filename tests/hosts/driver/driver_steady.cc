// SPDX-License-Identifier: Apache-2.0
// Takes 64 MiB and works on with it until its input ends, then says what it did: driver_steady
// [managed|export|multicast|huge]. Prints each turn, so that a test sees whether it waits or
// continues. It keeps its pointers into the driver, as the CUDA runtime does.
#include <poll.h>

#include <cstdio>
#include <cstring>

#include "cuda_driver.h"

namespace {

bool InputHasEnded() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  char byte = 0;
  return poll(&input, 1, 1) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

}  // namespace

int main(int argc, char** argv) {
  void* const driver = LoadDriver();
  static DRIVER_HOOK(driver, cuInit);
  static DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  static DRIVER_HOOK(driver, cuCtxSetCurrent);
  static DRIVER_HOOK(driver, cuMemAlloc_v2);
  static DRIVER_HOOK(driver, cuMemFree_v2);
  static DRIVER_HOOK(driver, cuMemAllocManaged);
  static DRIVER_HOOK(driver, cuIpcGetMemHandle);
  static DRIVER_HOOK(driver, cuMulticastCreate);
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  const char* const more = argc > 1 ? argv[1] : "";
  CUdeviceptr kept = 0;
  CHECK(cuMemAlloc_v2(&kept, std::strcmp(more, "huge") == 0 ? size_t{60} << 40 : size_t{64} << 20));
  CUdeviceptr extra = 0;
  CUipcMemHandle ipc{};
  if (std::strcmp(more, "managed") == 0)
    CHECK(cuMemAllocManaged(&extra, size_t{8} << 20, 1));
  if (std::strcmp(more, "export") == 0)
    CHECK(cuIpcGetMemHandle(&ipc, kept));
  if (std::strcmp(more, "multicast") == 0) {
    // Only the real driver looks into it.
    alignas(8) const char properties[64]{};
    CUmemGenericAllocationHandle handle = 0;
    CHECK(cuMulticastCreate(&handle, reinterpret_cast<const CUmulticastObjectProp*>(properties)));
  }
  std::puts("ready");
  std::fflush(stdout);
  unsigned long turns = 0;
  unsigned long long sum = kept;
  while (!InputHasEnded()) {
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc_v2(&address, size_t{4} << 20));
    sum = sum * 31 + address;
    CHECK(cuMemFree_v2(address));
    ++turns;
    std::printf("turn %lu\n", turns);
    std::fflush(stdout);
    usleep(5000);
  }
  std::printf("same addresses %d\n", [&] {
    unsigned long long again = kept;
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc_v2(&address, size_t{4} << 20));
    for (unsigned long i = 0; i < turns; ++i)
      again = again * 31 + address;
    CHECK(cuMemFree_v2(address));
    return static_cast<int>(again == sum);
  }());
  CHECK(cuMemFree_v2(kept));
  return 0;
}
