// SPDX-License-Identifier: Apache-2.0
// Takes and gives back memory at random until its input ends: driver_neighbour SEED. Up to 2 GiB at
// once, which is more than contexts take. With seed 0 it has 2 GiB until another process arrives at
// the fake device, and frees them at that moment.
#include <poll.h>

#include <random>
#include <vector>

#include "cuda_driver.h"
#include "fake_cuda/books.h"

namespace {

bool IsAlone(const FakeDevice& device) {
  int others = 0;
  for (const FakeProcess& row : device.processes) {
    const uint32_t pid = __atomic_load_n(&row.pid, __ATOMIC_ACQUIRE);
    others += pid != static_cast<uint32_t>(getpid()) && FakeProcessIsAlive(pid) ? 1 : 0;
  }
  return others == 0;
}

bool InputEndsWithin(int milliseconds) {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&input, 1, milliseconds) > 0;
}

}  // namespace

int main(int argc, char** argv) {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  DRIVER_HOOK(driver, cuMemFree_v2);
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  const unsigned seed = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 1;
  CUdeviceptr given_back = 0;
  if (seed == 0)
    CHECK(cuMemAlloc_v2(&given_back, size_t{2} << 30));
  std::puts("ready");
  std::fflush(stdout);
  if (seed == 0) {
    const FakeBooks* const books = FakeBooksOpen();
    REQUIRE(books != nullptr);
    while (IsAlone(books->devices[0]) && !InputEndsWithin(1)) {
    }
    CHECK(cuMemFree_v2(given_back));
    while (!InputEndsWithin(-1)) {
    }
    return 0;
  }

  std::minstd_rand random(seed);
  constexpr size_t kMost = 8;
  constexpr size_t kPage = size_t{2} << 20;
  constexpr size_t kMostPages = 128;
  std::vector<CUdeviceptr> held;
  bool grows = true;
  do {
    grows = held.empty() || (grows ? held.size() < kMost && random() % 8 != 0 : random() % 8 == 0);
    if (grows) {
      held.push_back(0);
      CHECK(cuMemAlloc_v2(&held.back(), (1 + random() % kMostPages) * kPage));
    } else {
      CHECK(cuMemFree_v2(held.back()));
      held.pop_back();
    }
  } while (!InputEndsWithin(static_cast<int>(1 + random() % 10)));
  return 0;
}
