// SPDX-License-Identifier: Apache-2.0
// Nanoseconds for one stream-ordered allocation and its free, below some calls of the program's:
// run it plain and under the probe, the difference is two events.
#include <algorithm>
#include <chrono>

#include "cuda_driver.h"

namespace {

template <class Pair>
__attribute__((noinline)) double AtDepth(int left, const Pair& pair) {
  if (left > 0) {
    const double result = AtDepth(left - 1, pair);
    asm volatile("" ::: "memory");  // no tail call
    return result;
  }
  constexpr int kPairs = 2000, kRounds = 50;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kPairs; ++i)
      pair();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / kPairs);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAllocAsync);
  DRIVER_HOOK(driver, cuMemFreeAsync);
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  const auto pair = [=] {
    CUdeviceptr address = 0;
    CHECK(cuMemAllocAsync(&address, 512, nullptr));
    CHECK(cuMemFreeAsync(address, nullptr));
  };
  std::printf("%.1f\n", AtDepth(argc > 1 ? std::atoi(argv[1]) : 25, pair));
  return 0;
}
