// SPDX-License-Identifier: Apache-2.0
#include "util/budget.h"

#include <gtest/gtest.h>

namespace vramscope::util {
namespace {

TEST(BudgetTest, GrowsWithTheFile) {
  Budget budget(1000, 50, 3);
  EXPECT_EQ(budget.left_bytes(), 3050u);
  EXPECT_TRUE(budget.Charge("rows", 100, 30));
  EXPECT_TRUE(budget.Charge("names", 50));
  EXPECT_FALSE(budget.IsOver());
  EXPECT_FALSE(budget.Charge("names", 1));
}

TEST(BudgetTest, WhatGoesBeyondItIsRefusedWithWhatItClaimed) {
  Budget budget(6000, 1 << 20, 0);
  EXPECT_FALSE(budget.Charge("devices", 250'000'000, 32));
  EXPECT_EQ(budget.Refusal("a.vram").message(),
            "a.vram: its 250000000 devices would take more than 1.00 MiB of memory, too much for a "
            "file of 5.86 KiB: it is damaged or malicious");
}

TEST(BudgetTest, OnceOverStaysOver) {
  Budget budget(0, 100, 0);
  EXPECT_FALSE(budget.Charge("frames", 101));
  EXPECT_FALSE(budget.Charge("names", 1));
  EXPECT_TRUE(budget.IsOver());
  EXPECT_NE(budget.Refusal("x").message().find("101 frames"), std::string::npos);
}

TEST(BudgetTest, NoProductIsTooLargeToCount) {
  Budget budget(UINT64_MAX, 1, 2);
  EXPECT_EQ(budget.left_bytes(), UINT64_MAX);
  EXPECT_TRUE(budget.Charge("bytes", 1));
  EXPECT_FALSE(budget.Charge("rows", uint64_t{1} << 40, uint64_t{1} << 40));
}

}  // namespace
}  // namespace vramscope::util
