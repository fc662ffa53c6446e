// SPDX-License-Identifier: Apache-2.0
// Takes driver-owned memory of every kind, and says at rest what its own figure is: lines of
// "rest TIME_NS BYTES". Beside it another program uses the same device.
#include <time.h>

#include "cuda_driver.h"
#include "fake_cuda/books.h"

namespace {

constexpr char kImage[] =
    "FAKE code=3145728 global=67108864 kernel=plain:0:0 kernel=spill:65536:0 "
    "kernel=lazy:0:4194304";

void Rest() {
  static FakeBooks* const books = FakeBooksOpen();
  REQUIRE(books != nullptr);
  // Until the launcher has listed processes since, and has written down what it read: it is asking
  // the next time. How long that takes is the machine's affair.
  const FakeDevice& device = books->devices[0];
  const auto lists = [&] { return __atomic_load_n(&device.process_lists, __ATOMIC_ACQUIRE); };
  for (const uint32_t before = lists(); lists() - before < 2;)
    usleep(1000);
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::printf("rest %lld %lld\n", now.tv_sec * 1'000'000'000ll + now.tv_nsec,
              static_cast<long long>(FakeBooksProcess(&books->devices[0])->process_bytes));
  std::fflush(stdout);
  usleep(1000);
}

}  // namespace

int main() {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  DRIVER_HOOK(driver, cuMemFree_v2);
  DRIVER_HOOK(driver, cuModuleLoadData);
  DRIVER_HOOK(driver, cuModuleGetFunction);
  DRIVER_HOOK(driver, cuModuleUnload);
  DRIVER_HOOK(driver, cuLaunchKernel);
  DRIVER_HOOK(driver, cuStreamCreate);
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  Rest();
  CUdeviceptr kept = 0;
  CHECK(cuMemAlloc_v2(&kept, size_t{64} << 20));
  CUmodule module = nullptr;
  CHECK(cuModuleLoadData(&module, kImage));
  Rest();
  for (const char* const name : {"plain", "spill", "lazy"}) {
    CUfunction function = nullptr;
    CHECK(cuModuleGetFunction(&function, module, name));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
  }
  for (int i = 0; i < 3; ++i) {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, 0));
  }
  Rest();
  CHECK(cuModuleUnload(module));
  CHECK(cuMemFree_v2(kept));
  Rest();
  return 0;
}
