// SPDX-License-Identifier: Apache-2.0
// Where iterations begin and end, and their peaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/training.h"

namespace vramscope::query {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class IterationTest : public TrainingTest {
 protected:
  void Forward(uint64_t bytes) {
    InLayer(kFirst, 20);
    trace_.Alloc(0x1000, bytes);
    trace_.Free(0x1000);
  }
  void StepOf(uint64_t optimizer) {
    InStep();
    trace_.StepBegin(optimizer);
    trace_.StepEnd(optimizer);
  }
  // The peaks of all iterations, and the error of the one behind the last.
  std::vector<uint64_t> Peaks(std::string* error) {
    auto analysis = Analyse(trace_);
    std::vector<uint64_t> peaks;
    for (int number = 0;; ++number) {
      const auto report = MakeReport(*analysis, At("iter:" + std::to_string(number)));
      if (!report.ok()) {
        *error = report.status().message();
        return peaks;
      }
      EXPECT_EQ(report->devices[0].at_kind, "iteration");
      EXPECT_EQ(report->devices[0].at_iteration, number);
      EXPECT_EQ(BrokenInvariants(*report), "");
      peaks.push_back(report->devices[0].ledger_bytes);
    }
  }
  std::string error_;
};

TEST_F(IterationTest, EndsWithEachStep) {
  InMain(1);
  trace_.Alloc(0x9000, 1000);  // before the first
  trace_.Free(0x9000);
  for (const uint64_t bytes : {10u, 40u, 20u}) {
    Forward(bytes);
    StepOf(kSgd);
  }
  Forward(500);  // after the last
  EXPECT_THAT(Peaks(&error_), ElementsAre(10, 40, 20));
  EXPECT_THAT(error_, HasSubstr("iterations 0 to 2"));
  EXPECT_FALSE(ReportOf(trace_, At("peak")).devices[0].at_iteration.has_value());
}

TEST_F(IterationTest, WhatStandsAtItsBeginCounts) {
  Forward(1);
  trace_.Alloc(0x2000, 100);
  StepOf(kSgd);
  trace_.Free(0x2000);
  trace_.Alloc(0x3000, 5);
  StepOf(kSgd);
  StepOf(kSgd);
  EXPECT_THAT(Peaks(&error_), ElementsAre(100, 100, 5));
}

TEST_F(IterationTest, BlocksKnowTheirs) {
  InMain(1);
  trace_.Alloc(0x1, 1);
  for (uint64_t i = 1; i <= 2; ++i) {
    InLayer(kFirst, 20);
    trace_.Alloc(0x2000 * i, 10 * i);
    StepOf(kSgd);
  }
  trace_.Alloc(0x9000, 100);
  EXPECT_THAT(By("iteration"), UnorderedElementsAre(Pair("(before the first)", 1), Pair("0", 10),
                                                    Pair("1", 20), Pair("(after the last)", 100)));
}

TEST_F(IterationTest, AGanTakesTurns) {
  for (const uint64_t bytes : {10u, 20u, 30u}) {
    Forward(bytes);
    StepOf(0xd);
    Forward(bytes + 1);
    StepOf(0xe);
  }
  EXPECT_THAT(Peaks(&error_), ElementsAre(11, 21, 31));
}

TEST_F(IterationTest, GradientsAddUpBeforeAStep) {
  for (const uint64_t bytes : {10u, 20u}) {
    Forward(bytes);
    Forward(bytes + 5);
    Forward(bytes + 1);
    StepOf(kSgd);
  }
  EXPECT_THAT(Peaks(&error_), ElementsAre(15, 25));
}

TEST_F(IterationTest, AnotherOptimizerTakesOver) {
  for (const uint64_t bytes : {10u, 20u}) {
    Forward(bytes);
    StepOf(kSgd);
  }
  for (const uint64_t bytes : {30u, 40u, 50u}) {
    Forward(bytes);
    StepOf(0xada);
  }
  EXPECT_THAT(Peaks(&error_), ElementsAre(10, 20, 30, 40, 50));
}

TEST_F(IterationTest, MarksCountInPlaceOfSteps) {
  trace_.StepIs(1000);
  for (const uint64_t bytes : {10u, 20u}) {
    Forward(bytes);
    StepOf(kSgd);
    Forward(bytes + 5);
    StepOf(kSgd);
    trace_.Mark("iteration " + std::to_string(bytes));
  }
  trace_.Mark("iterations are over");
  EXPECT_THAT(Peaks(&error_), ElementsAre(15, 25));
}

TEST_F(IterationTest, NoneIsAnError) {
  Forward(1);
  EXPECT_THAT(Peaks(&error_), IsEmpty());
  EXPECT_THAT(error_, HasSubstr("no iterations"));
}

}  // namespace
}  // namespace vramscope::query
