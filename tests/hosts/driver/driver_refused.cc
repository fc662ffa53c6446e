// SPDX-License-Identifier: Apache-2.0
// A solver that runs out of device memory: its fields take five eighths of what is free, and what
// it wants next is more than the rest.
//
//   driver_refused end      ends with status 1, as such programs do
//   driver_refused caught   continues with less
//   driver_refused killed   is killed right after
#include <csignal>
#include <cstring>

#include "cuda_driver.h"

namespace {

using Alloc = HookTraits<HookId::cuMemAlloc_v2>::Function;

// A statement after the calls keeps the frames in the stack.
__attribute__((noinline)) bool MakeFields(Alloc* alloc, int count, size_t size_bytes) {
  CUdeviceptr address = 0;
  int made = 0;
  while (made < count && alloc(&address, size_bytes) == kSuccess)
    ++made;
  return made == count;
}

__attribute__((noinline)) bool MakePreconditioner(Alloc* alloc, size_t size_bytes) {
  CUdeviceptr address = 0;
  const bool made = alloc(&address, size_bytes) == kSuccess;
  return made && address != 0;
}

}  // namespace

int main(int argc, char** argv) {
  REQUIRE(argc == 2);
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_CALL(driver, cuMemGetInfo_v2);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  size_t free_bytes = 0, total_bytes = 0;
  CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  const size_t eighth = free_bytes / 8 >> 21 << 21;
  REQUIRE(MakeFields(cuMemAlloc_v2, 5, eighth));
  const bool made = MakePreconditioner(cuMemAlloc_v2, 4 * eighth);
  REQUIRE(!made);
  if (std::strcmp(argv[1], "killed") == 0)
    std::raise(SIGKILL);
  if (std::strcmp(argv[1], "caught") != 0)
    return 1;
  REQUIRE(MakePreconditioner(cuMemAlloc_v2, eighth));
  std::puts("goes on");
  return 0;
}
