// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/pjrt/live_buffers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace vramscope::probe::pjrt {
namespace {

const void* Buffer(uintptr_t number) {
  return reinterpret_cast<const void*>(0x7f0000000000 + number * 16);
}

template <class Table>
int32_t Take(Table& table, const void* buffer) {
  uint64_t bytes = 0;
  return table.Take(buffer, &bytes);
}

using Small = LiveBuffers<8>;
using Large = LiveBuffers<1024>;

TEST(LiveBuffers, EachIsTakenOnce) {
  const auto table = std::make_unique<Large>();
  EXPECT_TRUE(table->Insert(Buffer(1), 0, 256));
  EXPECT_TRUE(table->Insert(Buffer(2), 15, 256));
  EXPECT_EQ(Take(*table, Buffer(3)), -1);
  EXPECT_EQ(table->Find(Buffer(3)), -1);
  EXPECT_EQ(table->Find(Buffer(2)), 15);
  EXPECT_EQ(Take(*table, Buffer(2)), 15);
  EXPECT_EQ(Take(*table, Buffer(2)), -1);
  EXPECT_EQ(Take(*table, Buffer(1)), 0);
  EXPECT_EQ(Take(*table, nullptr), -1);
}

TEST(LiveBuffers, DeclinesWhatItCannotHold) {
  const auto table = std::make_unique<Large>();
  EXPECT_FALSE(table->Insert(nullptr, 0, 256));
  EXPECT_FALSE(table->Insert(Buffer(1), 16, 256));
  EXPECT_FALSE(table->Insert(static_cast<const char*>(Buffer(1)) + 8, 0, 256));
}

TEST(LiveBuffers, FullBucketsUseTheNextAndPlacesAreUsedAgain) {
  const auto table = std::make_unique<Small>();
  for (int round = 0; round < 100; ++round) {
    uintptr_t count = 0;
    while (table->Insert(Buffer(count), static_cast<uint32_t>(count % 16), count))
      ++count;
    EXPECT_EQ(count, 8u * 7) << "round " << round;
    for (uintptr_t i = 0; i < count; ++i) {
      uint64_t bytes = 0;
      ASSERT_EQ(table->Take(Buffer(i), &bytes), static_cast<int32_t>(i % 16));
      ASSERT_EQ(bytes, i);
    }
  }
}

TEST(LiveBuffers, NamesAreTakenOnce) {
  const auto table = std::make_unique<Large>();
  EXPECT_TRUE(table->Insert(Buffer(1), 2, 256));
  EXPECT_TRUE(table->Insert(Buffer(2), 5, 256, true));
  bool was_named = true;
  EXPECT_EQ(table->TakeName(Buffer(1), &was_named), 2);
  EXPECT_FALSE(was_named);
  EXPECT_EQ(table->TakeName(Buffer(1), &was_named), 2);
  EXPECT_TRUE(was_named);
  EXPECT_EQ(table->TakeName(Buffer(2), &was_named), 5);
  EXPECT_TRUE(was_named);
  EXPECT_EQ(table->TakeName(Buffer(3), &was_named), -1);
  EXPECT_EQ(Take(*table, Buffer(1)), 2);
  EXPECT_EQ(Take(*table, Buffer(2)), 5);
}

TEST(LiveBuffers, ClearForgets) {
  const auto table = std::make_unique<Large>();
  EXPECT_TRUE(table->Insert(Buffer(1), 1, 256));
  table->Clear();
  EXPECT_EQ(Take(*table, Buffer(1)), -1);
}

TEST(LiveBuffers, OfSeveralThreadsOneTakesIt) {
  const auto table = std::make_unique<Large>();
  constexpr uintptr_t kCount = 4000;
  for (uintptr_t i = 0; i < kCount; ++i)
    ASSERT_TRUE(table->Insert(Buffer(i), 3, 256));
  std::atomic<uintptr_t> taken{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uintptr_t i = 0; i < kCount; ++i)
        taken += Take(*table, Buffer(i)) == 3 ? 1 : 0;
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(taken, kCount);
}

}  // namespace
}  // namespace vramscope::probe::pjrt
