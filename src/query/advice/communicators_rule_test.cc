// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "query/advice/advice.h"
#include "query/core/peaks.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;

// Two ranks, each on a GPU of its own with tensors of 5000 bytes.
class CommunicatorsRuleTest : public ::testing::Test {
 protected:
  CommunicatorsRuleTest() {
    for (int32_t rank = 0; rank < 2; ++rank) {
      const auto process = builder_.Process(100 + static_cast<uint32_t>(rank), 1000);
      ranks_.push_back(builder_.Account(process, builder_.Device(tables::DeviceKind::kGpu, rank)));
      auto site = builder_.SiteOf(ranks_.back(), Part::kAllocated, Category::kParameter);
      site.allocator = builder_.Text("PyTorch");
      builder_.Row(builder_.Site(site), 10, 900, 5000u - static_cast<uint32_t>(rank));
    }
  }

  void Add(size_t rank,
           const std::string& communicator,
           uint64_t bytes,
           int64_t begin_ns = 20,
           int64_t end_ns = 950) {
    auto site = builder_.SiteOf(ranks_[rank], Part::kAllocated, Category::kCommunication);
    site.communicator = builder_.Text(communicator);
    site.stack = stack_;
    builder_.Row(builder_.Site(site), begin_ns, end_ns, bytes);
  }
  void AddToBoth(const std::string& communicator, uint64_t bytes, int64_t begin_ns = 20) {
    Add(0, communicator, bytes, begin_ns);
    Add(1, communicator, bytes, begin_ns);
  }
  Savings Advice() {
    auto recording = builder_.Make();
    builder_.tables.peaks = *FindPeaks(*recording);
    recording = builder_.Make();
    auto savings = FindSavings(*recording, {});
    EXPECT_TRUE(savings.ok()) << savings.status().message();
    return savings.ok() ? *savings : Savings();
  }

  RecordingBuilder builder_;
  std::vector<tables::AccountId> ranks_;
  tables::StackId stack_;
};

TEST_F(CommunicatorsRuleTest, WhatIsPromisedIsThePeakWithout) {
  AddToBoth("0xa of 2 ranks", 484);
  const uint64_t shared = Advice().device_peak_bytes;
  AddToBoth("0xb of 2 ranks", 480);
  AddToBoth("0xc of 2 ranks", 470);
  const Savings savings = Advice();
  ASSERT_EQ(savings.savings.size(), 1u);
  const Saving& saving = savings.savings[0];
  EXPECT_EQ(saving.rule, "communicators");
  EXPECT_EQ(saving.change, "use one process group in place of 3 of the same 2 ranks");
  EXPECT_THAT(saving.why, ::testing::HasSubstr("0xa of 2 ranks, 0xb of 2 ranks, 0xc of 2 ranks"));
  EXPECT_EQ(saving.lowers, "device");
  EXPECT_EQ(saving.confidence, "at most");
  EXPECT_EQ(saving.saves_bytes, 950u);
  EXPECT_EQ(saving.peak_bytes, shared);
  EXPECT_EQ(savings.device_peak_bytes, shared + 950);
  EXPECT_EQ(savings.together_bytes, savings.allocated_peak_bytes);
}

TEST_F(CommunicatorsRuleTest, NotWhatComesAfterThePeak) {
  AddToBoth("0xa of 2 ranks", 484);
  AddToBoth("0xb of 2 ranks", 484, 920);
  EXPECT_TRUE(Advice().savings.empty());
}

TEST_F(CommunicatorsRuleTest, NotOneAfterTheOther) {
  for (size_t rank = 0; rank < 2; ++rank) {
    Add(rank, "0xa of 2 ranks", 484, 20, 100);
    Add(rank, "0xb of 2 ranks", 480, 100, 950);
  }
  builder_.Row(tables::SiteId{1}, 200, 900, 1000);  // the peak is the second one's
  EXPECT_TRUE(Advice().savings.empty());
}

TEST_F(CommunicatorsRuleTest, NotOfOtherRanks) {
  AddToBoth("0xa of 2 ranks", 484);
  Add(0, "0xb of 2 ranks", 484);  // its other rank is elsewhere
  EXPECT_TRUE(Advice().savings.empty());
}

TEST_F(CommunicatorsRuleTest, NotWhereRanksAreMissing) {
  AddToBoth("0xa of 4 ranks", 484);
  AddToBoth("0xb of 4 ranks", 484);
  AddToBoth("0xc", 484);
  AddToBoth("one of several", 484);
  EXPECT_TRUE(Advice().savings.empty());
}

TEST_F(CommunicatorsRuleTest, NotOfPairsThatSendAndReceive) {
  AddToBoth("0xa of 2 ranks", 484);
  tables::FrameRow frame;
  frame.function = builder_.Text("isend");
  frame.file = builder_.Text("/x/torch/distributed/distributed_c10d.py");
  builder_.tables.frames.push_back(frame);
  builder_.tables.stacks.push_back({{}, tables::FrameId{1}});
  stack_ = tables::StackId{1};
  AddToBoth("0xb of 2 ranks", 484);
  EXPECT_TRUE(Advice().savings.empty());
}

}  // namespace
}  // namespace vramscope::query
