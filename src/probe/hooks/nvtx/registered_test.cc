// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "probe/hooks/nvtx/nvtx.h"

namespace vramscope::probe::nvtx {
namespace {

const Registered* Put(std::string_view text) {
  return Register(text.data(), text.size());
}

std::string_view TextOf(const Registered* string) {
  return {string->text, string->size_bytes};
}

TEST(Registered, KeepsEachTextOnce) {
  const Registered* const first = Put("forward");
  const Registered* const second = Put("backward");
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_NE(first, second);
  EXPECT_EQ(Put("forward"), first);
  EXPECT_EQ(TextOf(first), "forward");
  EXPECT_EQ(FromHandle(first), first);
}

TEST(Registered, RefusesForeignHandles) {
  const Registered* const string = Put("a string of some length");
  int other = 0;
  EXPECT_EQ(FromHandle(nullptr), nullptr);
  EXPECT_EQ(FromHandle(&other), nullptr);
  EXPECT_EQ(FromHandle(reinterpret_cast<const char*>(string) + 1), nullptr);
  EXPECT_EQ(FromHandle(reinterpret_cast<const void*>(~uintptr_t{7})), nullptr);
}

TEST(Registered, ThreadsAgree) {
  constexpr int kThreads = 8, kTexts = 200;
  std::vector<std::vector<const Registered*>> found(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTexts; ++i)
        found[static_cast<size_t>(t)].push_back(Put("shared " + std::to_string(i)));
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& of_thread : found)
    EXPECT_EQ(of_thread, found[0]);
  EXPECT_EQ(std::set(found[0].begin(), found[0].end()).size(), size_t{kTexts});
}

// Last: afterwards the table is full.
TEST(Registered, SaysWhenItIsFull) {
  const Registered* const before = Put("before");
  int kept = 0;
  while (Put("text number " + std::to_string(kept)) != nullptr)
    ASSERT_LT(++kept, 1 << 20) << "memory must be bounded";
  EXPECT_GT(kept, 5000);
  EXPECT_EQ(Put("before"), before);
}

}  // namespace
}  // namespace vramscope::probe::nvtx
