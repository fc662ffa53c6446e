// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger/shared_memory.h"

#include <gtest/gtest.h>

namespace vramscope::resolve {
namespace {

constexpr trace::DeviceId kDevice{0};
constexpr trace::ProcessId kMaker{0};
constexpr trace::ProcessId kImporter{1};
constexpr trace::ProcessId kOther{2};
using Holder = SharedMemory::Holder;

TEST(SharedMemoryTest, WhoCameFirstOfThoseThatAreLeftIsTheHeir) {
  SharedMemory shared;
  const uint32_t number = shared.OfKey(77);
  EXPECT_EQ(shared.Join(number, kNoIndex, {kMaker, 1}, kDevice, 100), number);
  EXPECT_EQ(shared.Join(shared.OfKey(77), kNoIndex, {kImporter, 2}, kDevice, 0), number);
  EXPECT_EQ(shared.Join(shared.OfKey(77), kNoIndex, {kOther, 3}, kDevice, 0), number);
  EXPECT_EQ(shared.DeviceOf(number), kDevice);
  EXPECT_EQ(shared.Leave(number, {kMaker, 1}), (Holder{kImporter, 2}));
  EXPECT_EQ(shared.Leave(number, {kImporter, 2}), (Holder{kOther, 3}));
  EXPECT_EQ(shared.Leave(number, {kOther, 3}), std::nullopt);
}

TEST(SharedMemoryTest, WhatIsExportedUnderTwoKeysIsOneMemory) {
  SharedMemory shared;
  const uint32_t first = shared.Join(shared.OfKey(1), kNoIndex, {kMaker, 1}, kDevice, 100);
  shared.Join(shared.OfKey(2), kNoIndex, {kImporter, 2}, kDevice, 0);  // its event came first
  EXPECT_EQ(shared.Join(shared.OfKey(2), first, {kMaker, 1}, kDevice, 100), first);
  EXPECT_EQ(shared.OfKey(2), first);
  EXPECT_EQ(shared.Leave(first, {kMaker, 1}), (Holder{kImporter, 2}));
}

TEST(SharedMemoryTest, ADescriptorIsFoundByItsSize) {
  SharedMemory shared;
  const uint32_t small = shared.Join(shared.OfKey(0), kNoIndex, {kMaker, 1}, kDevice, 100);
  EXPECT_EQ(shared.ClaimWithoutKey(kImporter, kDevice, 200), kNoIndex);
  EXPECT_EQ(shared.ClaimWithoutKey(kMaker, kDevice, 100), kNoIndex);
  EXPECT_EQ(shared.ClaimWithoutKey(kImporter, kDevice, 100), small);
  shared.Join(small, kNoIndex, {kImporter, 3}, kDevice, 0);
  EXPECT_EQ(shared.ClaimWithoutKey(kImporter, kDevice, 100), kNoIndex);  // it has it already
  EXPECT_EQ(shared.ClaimWithoutKey(kOther, kDevice, 100), small);  // one descriptor for several
}

// NCCL's communicators: memory for one peer, later memory of the same size for another one.
TEST(SharedMemoryTest, DescriptorOfLaterMemory_IsNotThatOfMemoryThatAnotherPeerHas) {
  SharedMemory shared;
  const uint32_t first = shared.Join(shared.OfKey(0), kNoIndex, {kMaker, 1}, kDevice, 100);
  EXPECT_EQ(shared.ClaimWithoutKey(kImporter, kDevice, 100), first);
  shared.Join(first, kNoIndex, {kImporter, 2}, kDevice, 0);
  const uint32_t second = shared.Join(shared.OfKey(0), kNoIndex, {kMaker, 3}, kDevice, 100);
  EXPECT_EQ(shared.ClaimWithoutKey(kOther, kDevice, 100), second);
  shared.Join(second, kNoIndex, {kOther, 4}, kDevice, 0);
  // When the maker and its peer have left, no process holds the first one.
  EXPECT_EQ(shared.Leave(first, {kMaker, 1}), (SharedMemory::Holder{kImporter, 2}));
  EXPECT_EQ(shared.Leave(first, {kImporter, 2}), std::nullopt);
}

TEST(SharedMemoryTest, MemoryExportedAgain_HasADescriptorForAnotherPeer) {
  SharedMemory shared;
  const uint32_t memory = shared.Join(shared.OfKey(0), kNoIndex, {kMaker, 1}, kDevice, 100);
  const uint32_t later = shared.Join(shared.OfKey(0), kNoIndex, {kMaker, 2}, kDevice, 100);
  EXPECT_EQ(shared.ClaimWithoutKey(kImporter, kDevice, 100), memory);
  shared.Join(memory, kNoIndex, {kImporter, 3}, kDevice, 0);
  EXPECT_EQ(shared.Join(shared.OfKey(0), memory, {kMaker, 1}, kDevice, 100), memory);
  EXPECT_EQ(shared.ClaimWithoutKey(kOther, kDevice, 100), memory);
  shared.Join(memory, kNoIndex, {kOther, 4}, kDevice, 0);
  EXPECT_EQ(shared.ClaimWithoutKey(kOther, kDevice, 100), later);
}

TEST(SharedMemoryTest, WhoHadItIsRememberedAcrossItsKeys) {
  SharedMemory shared;
  const uint32_t first = shared.Join(shared.OfKey(1), kNoIndex, {kMaker, 1}, kDevice, 100);
  shared.Describe(first, {.holder = {kMaker, 1}, .begin_ns = 10, .made = true});
  const uint32_t second = shared.Join(shared.OfKey(2), kNoIndex, {kImporter, 2}, kDevice, 0);
  shared.Describe(second, {.holder = {kImporter, 2}, .begin_ns = 20});
  shared.Join(shared.OfKey(2), first, {kMaker, 1}, kDevice, 100);
  shared.Leave(first, {kMaker, 1}, 30, true);
  shared.Leave(second, {kImporter, 2}, 40, false);
  size_t memories = 0;
  shared.ForEach([&](const SharedMemory::Uses& memory) {
    ++memories;
    EXPECT_EQ(memory.bytes, 100u);
    ASSERT_EQ(memory.uses.size(), 2u);
    EXPECT_EQ(memory.uses[0].end_ns, 30);
    EXPECT_FALSE(memory.uses[0].is_over);
    EXPECT_EQ(memory.uses[1].end_ns, 40);
    EXPECT_TRUE(memory.uses[1].is_over);
  });
  EXPECT_EQ(memories, 1u);
}

}  // namespace
}  // namespace vramscope::resolve
