// SPDX-License-Identifier: Apache-2.0
// Eight threads allocate and free at once; freed addresses come back to other threads. Sizes and
// order are the same in every run, addresses are not.
#include <thread>
#include <vector>

#include "cuda_driver.h"

namespace {

constexpr int kThreads = 8;
constexpr int kRounds = 500;

}  // namespace

int main() {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  DRIVER_HOOK(driver, cuMemFree_v2);
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([=] {
      CHECK(cuCtxSetCurrent(context));
      for (int round = 0; round < kRounds; ++round) {
        CUdeviceptr first = 0, second = 0;
        CHECK(cuMemAlloc_v2(&first, (2u << 20) * (1 + static_cast<unsigned>(round + t) % 3)));
        CHECK(cuMemAlloc_v2(&second, 512u * (1 + static_cast<unsigned>(round) % 64)));
        CHECK(cuMemFree_v2(first));
        CHECK(cuMemFree_v2(second));
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  return 0;
}
