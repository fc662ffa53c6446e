// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/torch/address_set.h"

#include <gtest/gtest.h>

#include <memory>

namespace vramscope::probe {
namespace {

TEST(AddressSet, HoldsWhatWasPutInUntilItIsTakenOut) {
  auto set = std::make_unique<AddressSet<1024>>();
  for (uintptr_t address = 16; address <= 16 * 500; address += 16)
    set->Insert(address);
  for (uintptr_t address = 16; address <= 16 * 500; address += 32)
    set->Erase(address);
  for (uintptr_t address = 16; address <= 16 * 500; address += 16)
    EXPECT_EQ(set->Contains(address), address % 32 == 0) << address;
}

TEST(AddressSet, ASlotOfWhatWasTakenOutIsUsedAgain) {
  auto set = std::make_unique<AddressSet<16>>();
  for (int i = 0; i < 1000; ++i) {
    set->Insert(4096);
    set->Insert(4096);
    EXPECT_TRUE(set->Contains(4096));
    set->Erase(4096);
    EXPECT_FALSE(set->Contains(4096));
  }
}

TEST(AddressSet, WhatIsTakenIsTakenOnce) {
  auto set = std::make_unique<AddressSet<16>>();
  set->Insert(4096);
  const uint32_t taken_out = set->taken_out();
  EXPECT_FALSE(set->Take(8192));
  EXPECT_TRUE(set->Take(4096));
  EXPECT_FALSE(set->Take(4096));
  EXPECT_EQ(set->taken_out(), taken_out);
}

TEST(AddressSet, BeginsAnewWhenItIsFull) {
  auto set = std::make_unique<AddressSet<16>>();
  for (uintptr_t address = 8; address <= 8 * 13; address += 8)
    set->Insert(address);
  EXPECT_TRUE(set->Contains(8 * 13)) << "the newest is always there";
  EXPECT_FALSE(set->Contains(8));
}

}  // namespace
}  // namespace vramscope::probe
