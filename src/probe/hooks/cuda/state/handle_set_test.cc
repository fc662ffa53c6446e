// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/state/handle_set.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace vramscope::probe::cuda {
namespace {

template <size_t kCapacity>
std::unique_ptr<HandleSet<kCapacity>> MakeSet() {
  return std::make_unique<HandleSet<kCapacity>>();
}

TEST(HandleSet, InsertsOnceAndErases) {
  auto set = MakeSet<64>();
  EXPECT_FALSE(set->Contains(0x7f0000001000));
  EXPECT_TRUE(set->Insert(0x7f0000001000));
  EXPECT_FALSE(set->Insert(0x7f0000001000));
  EXPECT_TRUE(set->Contains(0x7f0000001000));
  EXPECT_TRUE(set->Erase(0x7f0000001000));
  EXPECT_FALSE(set->Erase(0x7f0000001000));
  EXPECT_FALSE(set->Contains(0x7f0000001000));
}

TEST(HandleSet, TheNullHandleIsAHandle) {
  auto set = MakeSet<64>();
  EXPECT_FALSE(set->Contains(0));
  EXPECT_TRUE(set->Insert(0));
  EXPECT_TRUE(set->Contains(0));
}

TEST(HandleSet, ErasedNeighboursDoNotHideOthers) {
  auto set = MakeSet<16>();
  for (uint64_t handle = 16; handle < 24; ++handle)
    set->Insert(handle * 64);
  for (uint64_t handle = 16; handle < 24; handle += 2)
    EXPECT_TRUE(set->Erase(handle * 64));
  for (uint64_t handle = 17; handle < 24; handle += 2)
    EXPECT_TRUE(set->Contains(handle * 64));
}

TEST(HandleSet, PairsThatAreEquallyFarApartAreNotOne) {
  constexpr uint64_t kContext = 0x5606566c8c40;
  constexpr uint64_t kKernel = 0x560656700100;
  EXPECT_NE(MakeContextKey(kContext, kKernel), MakeContextKey(kContext ^ 0x1520, kKernel ^ 0x1520));
}

TEST(HandleSet, AFullSetForgetsEverythingAndGoesOn) {
  auto set = MakeSet<16>();
  for (uint64_t handle = 0; handle < 1000; ++handle) {
    EXPECT_TRUE(set->Insert(4096 + handle * 64));
    EXPECT_TRUE(set->Contains(4096 + handle * 64));
  }
}

TEST(HandleSet, OneOfManyThreadsInsertsEachHandle) {
  auto set = MakeSet<65536>();
  std::atomic<int> inserted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t handle = 1; handle <= 4000; ++handle)
        inserted += set->Insert(handle * 4096) ? 1 : 0;
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(inserted, 4000);
}

}  // namespace
}  // namespace vramscope::probe::cuda
