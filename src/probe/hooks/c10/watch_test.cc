// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/c10/watch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

namespace vramscope::probe {
namespace {

const void* Address(uint64_t n) {
  return reinterpret_cast<const void*>(uintptr_t{0x7f0000000000} + n * 512);
}

struct Sum {
  int64_t bytes = 0;
  uint64_t last = 0;
  bool in_order = true;
};

Sum SumFrom(uint64_t first, bool* complete) {
  Sum sum;
  *complete = VisitLiveBlocks(
      first,
      [](const LiveBlock& block, void* data) {
        auto* const to = static_cast<Sum*>(data);
        to->in_order = to->in_order && (to->bytes == 0 || block.serial > to->last);
        to->bytes += block.size;
        to->last = block.serial;
      },
      &sum);
  return sum;
}

class WatchTest : public ::testing::Test {
 protected:
  ~WatchTest() override { WatchNothing(); }
};

TEST_F(WatchTest, OnlyWhatIsWatched) {
  EXPECT_FALSE(IsWatched(0));
  WatchDevice(2, 100, 1000);
  EXPECT_TRUE(IsWatched(2));
  EXPECT_FALSE(IsWatched(0));
  EXPECT_FALSE(IsWatched(-1));
  EXPECT_FALSE(IsWatched(kWatchedCpu));
  EXPECT_EQ(g_watched[2].allocated, 100);
  EXPECT_EQ(g_watched[2].peak_allocated, kNoPeak);
}

TEST_F(WatchTest, PeaksAreOfEvents) {
  WatchDevice(0, 0, 0);
  WatchGpuBlock(0, Address(1), 512, 512, 2048);
  WatchGpuBlock(0, Address(2), 1024, 1536, 2048);
  WatchGpuBlock(0, Address(1), -512, 1024, 2048);
  EXPECT_EQ(g_watched[0].peak_allocated.exchange(kNoPeak), 1536);
  EXPECT_EQ(g_watched[0].allocated, 1024);
  WatchGpuBlock(0, Address(2), -1024, 0, 2048);
  EXPECT_EQ(g_watched[0].peak_allocated, 0);
}

TEST_F(WatchTest, LiveBlocksInTheOrderInWhichTheyCame) {
  WatchDevice(0, 0, 0);
  const uint64_t first = WatchedSerial();
  int64_t bytes = 0;
  // Far more than the list holds at first; most of them are freed.
  for (uint64_t i = 1; i < 200'000; ++i) {
    const auto size = static_cast<int64_t>(i % 7 + 1);
    WatchGpuBlock(0, Address(i), size, 0, 0);
    if (i % 4 != 0)
      WatchGpuBlock(0, Address(i), -size, 0, 0);
    else
      bytes += size;
  }
  bool complete = false;
  const Sum sum = SumFrom(first, &complete);
  EXPECT_TRUE(complete);
  EXPECT_TRUE(sum.in_order);
  EXPECT_EQ(sum.bytes, bytes);
  const uint64_t later = WatchedSerial();
  WatchGpuBlock(0, Address(1), 99, 0, 0);
  EXPECT_EQ(SumFrom(later, &complete).bytes, 99);
}

TEST_F(WatchTest, MoreLiveBlocksThanItHoldsAreSaidToBeMissing) {
  WatchDevice(0, 0, 0);
  for (uint64_t i = 1; i < (1 << 20) + 10; ++i)
    WatchGpuBlock(0, Address(i), 1, 0, 0);
  bool complete = true;
  EXPECT_EQ(SumFrom(0, &complete).bytes, 1 << 20);
  EXPECT_FALSE(complete);
}

TEST_F(WatchTest, ManyThreads) {
  WatchDevice(kWatchedCpu, 0, 0);
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([] {
      for (int i = 0; i < 20'000; ++i) {
        void* const block = std::malloc(100);
        WatchCpuAlloc(block, 100);
        WatchCpuFree(block);
        std::free(block);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(g_watched[kWatchedCpu].allocated, 0);
  EXPECT_GE(g_watched[kWatchedCpu].peak_allocated, 100);
  EXPECT_LE(g_watched[kWatchedCpu].peak_allocated, 400);
}

}  // namespace
}  // namespace vramscope::probe
