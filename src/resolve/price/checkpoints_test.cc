// SPDX-License-Identifier: Apache-2.0
// Processes whose device memory the driver moves to host memory and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "resolve/price/device_builder.h"

namespace vramscope::resolve::price {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class CheckpointsTest : public ::testing::Test {
 protected:
  // 490 MiB of context and 10 of the kernel module's; 80 allocated; others' 100.
  CheckpointsTest() {
    process_ = device_.AddProcess();
    device_.Sample(100);
    device_.Context(0xc0);
    device_.Reading(600);
    device_.Sample(600);
    device_.Figure(490);
    device_.Moved(80);
    device_.Sample(680);
    device_.Figure(570);
  }
  std::vector<int64_t> Ledger() {
    std::vector<int64_t> mib;
    for (const SampleResult& sample : device_.Prices().samples)
      mib.push_back(sample.ledger_bytes / kMiB);
    return {mib.begin() + 3, mib.end()};
  }

  DeviceBuilder device_;
  uint32_t process_ = 0;
};

TEST_F(CheckpointsTest, AllLeavesAndComesBack) {
  const int64_t left_ns = device_.now_ns();
  device_.Checkpoint(true);
  device_.Sample(100);
  device_.Figure(0);
  const int64_t back_ns = device_.now_ns();
  device_.Checkpoint(false);
  device_.Sample(680);
  device_.Figure(570);
  EXPECT_THAT(device_.Prices().checkpointed, ElementsAre(Checkpointed{process_, left_ns, back_ns}));
  EXPECT_THAT(Ledger(), ElementsAre(100, 680));
  EXPECT_EQ(device_.Prices().figures[2].ledger_bytes, 0);
  EXPECT_EQ(device_.Prices().figures[3].ledger_bytes, 570 * kMiB);
  EXPECT_EQ(device_.WorstResidual(), 0);
  // RM-internal memory has no account: its steps show where it is.
  EXPECT_EQ(device_.Rows(left_ns)["RM-internal"], 0);
  EXPECT_EQ(device_.Rows(back_ns)["RM-internal"], 10);
}

// Seen on an H200: what it had for the context goes with it.
TEST_F(CheckpointsTest, WhatTheKernelModuleHadDoesNotComeBack) {
  device_.Checkpoint(true);
  device_.Sample(100);
  device_.Checkpoint(false);
  device_.Sample(670);
  device_.Figure(570);
  device_.Moved(8);
  device_.Sample(678);
  device_.Checkpoint(true);
  device_.Sample(100);
  device_.Checkpoint(false);
  device_.Sample(678);
  EXPECT_EQ(device_.WorstResidual(), 0);
  EXPECT_EQ(device_.Rows()["RM-internal"], 0);
}

TEST_F(CheckpointsTest, NorWhereSomebodyElseAsksForIt) {
  device_.Figure(0);
  device_.Sample(100);
  device_.Sample(100);
  device_.Figure(0);
  device_.Sample(400);
  device_.Sample(670);
  device_.Sample(670);
  device_.Figure(570);
  device_.Sample(670);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(CheckpointsTest, SamplesWithinTheCallsAreInTransit) {
  device_.Sample(500);
  device_.Sample(100);
  device_.Checkpoint(true, 3 * DeviceBuilder::kStepNs);
  device_.Sample(100);
  device_.Sample(300);
  device_.Checkpoint(false, 2 * DeviceBuilder::kStepNs);
  device_.Sample(680);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(CheckpointsTest, WhatIsFreedMeanwhileIsGoneWhenItIsBack) {
  device_.Checkpoint(true);
  device_.Sample(100);
  device_.Moved(-30).when.end_ns += 5 * DeviceBuilder::kStepNs;
  device_.Sample(100);
  device_.Checkpoint(false);
  device_.Sample(680);
  device_.At(device_.now_ns() + 10 * DeviceBuilder::kStepNs);
  device_.Sample(650);
  EXPECT_THAT(Ledger(), ElementsAre(100, 100, 650, 650));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// Another process's readings show it.
TEST_F(CheckpointsTest, ReadingsOfOthersMeanwhileAreWithoutIt) {
  const uint32_t second = device_.AddProcess();
  device_.In(process_);
  device_.Checkpoint(true);
  device_.In(second);
  device_.Context(0xc1);
  device_.Reading(300);
  device_.In(process_);
  device_.Checkpoint(false);
  device_.In(second);
  device_.Module("m");
  device_.Reading(884);
  EXPECT_EQ(device_.Rows()["1 context: cuCtxCreate"], 200);
  EXPECT_EQ(device_.Rows()["1 module code and globals: cuModuleLoadData m"], 4);
}

TEST_F(CheckpointsTest, AProcessThatEndsMeanwhileTakesNothingWithIt) {
  device_.Checkpoint(true);
  device_.Sample(100);
  device_.End();
  device_.Sample(100);
  device_.Sample(130);
  EXPECT_THAT(Ledger(), ElementsAre(100, 100, 130));
}

// An unrecorded tool: NVML's figures show it.
TEST_F(CheckpointsTest, FiguresTellOfACheckpointFromOutside) {
  device_.Sample(680);
  device_.Sample(400);
  device_.Sample(100);
  device_.Figure(0);
  device_.Sample(100);
  device_.Sample(350);
  device_.Figure(240);
  device_.Sample(680);
  device_.Figure(570);
  device_.Sample(680);
  EXPECT_THAT(Ledger(), ElementsAre(680, 680, 680, 100, 100, 680, 680));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(CheckpointsTest, TheDevicesFigureMaySinkAfterTheProcesss) {
  device_.Figure(0);
  device_.Sample(100);
  device_.Sample(100);
  EXPECT_THAT(Ledger(), ElementsAre(100, 100));
}

TEST_F(CheckpointsTest, ACallThatEndsShowsThatItIsBack) {
  device_.Sample(100);
  device_.Figure(0);
  device_.Sample(100);
  device_.Moved(30).when.begin_ns -= DeviceBuilder::kStepNs;
  device_.Sample(710);
  EXPECT_EQ(Ledger().back(), 710);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// So does one that takes what a pool had already.
TEST_F(CheckpointsTest, ACallThatMovesNothingShowsThatItIsBack) {
  device_.Sample(100);
  device_.Figure(0);
  device_.Moved(0);
  EXPECT_EQ(device_.Prices().checkpointed.back().end_ns, kNever);
  const int64_t back_ns = device_.now_ns();
  device_.Moved(0).asks = true;
  EXPECT_EQ(device_.Prices().checkpointed.back().end_ns, back_ns);
}

// While others use the device, only the process's own figure shows that it is back; if that is less
// than before, once it stays.
TEST_F(CheckpointsTest, AFigureThatStaysIsBack) {
  device_.Sample(100);
  device_.Figure(0);
  device_.Sample(100);
  device_.Figure(300);
  EXPECT_EQ(device_.Prices().checkpointed.back().end_ns, kNever);
  device_.Figure(540);
  const int64_t back_ns = device_.now_ns();
  device_.Figure(540);
  EXPECT_EQ(device_.Prices().checkpointed.back().end_ns, back_ns);
}

TEST_F(CheckpointsTest, AFigureAloneIsNoCheckpoint) {
  device_.Figure(0);
  device_.Sample(680);
  EXPECT_THAT(device_.Prices().checkpointed, IsEmpty());
}

TEST_F(CheckpointsTest, TheEndOfAProcessIsNoCheckpoint) {
  device_.Teardown();
  device_.Sample(100);
  device_.Figure(0);
  device_.End();
  EXPECT_THAT(device_.Prices().checkpointed, IsEmpty());
}

// As measured. While the memory moves, the process's figure has 4 MiB more, and 3 MiB are in none.
// The kernel module's memory for its context is back when the process continues. NVML shows the
// return before the call ends.
TEST_F(CheckpointsTest, AMoveTakesMemoryAndTheKernelModulesPartComesBackLast) {
  device_.Sample(680);
  device_.Sample(685);
  device_.Figure(574);
  device_.Sample(685);
  device_.Sample(103);
  device_.Checkpoint(true, 4 * DeviceBuilder::kStepNs);
  device_.Figure(0);
  device_.Sample(103);
  device_.Sample(100);
  device_.Sample(103);
  device_.Sample(680);
  device_.Sample(674);
  device_.Checkpoint(false, 4 * DeviceBuilder::kStepNs);
  device_.Sample(680);
  device_.At(device_.now_ns() + 2'000'000'000);
  device_.Sample(680);
  EXPECT_EQ(device_.WorstResidual(), 0);
  EXPECT_EQ(device_.Prices().figures[2].ledger_bytes, 574 * kMiB);
  EXPECT_THAT(device_.Rows(),
              ElementsAre(Pair("RM-internal", 10), Pair("context: cuCtxCreate", 490),
                          Pair("other processes", 100)));
}

// No sample tells when it is gone.
TEST_F(CheckpointsTest, WhatAMoveTookEndsWithIt) {
  device_.Sample(680);
  device_.Checkpoint(true);
  device_.Sample(103);
  device_.Checkpoint(false);
  device_.Sample(683);
  device_.Checkpoint(true);
  device_.Sample(103);
  device_.Checkpoint(false, 2 * DeviceBuilder::kStepNs);
  EXPECT_EQ(device_.WorstResidual(), 0);
  EXPECT_THAT(device_.Rows(),
              ElementsAre(Pair("RM-internal", 10), Pair("context: cuCtxCreate", 490),
                          Pair("other processes", 100)));
}

// A busy machine lists processes late.
TEST(CheckpointsAloneTest, SamplesBeforeTheFigureThatTellsAreNotMissing) {
  DeviceBuilder device;
  device.AddProcess();
  device.Sample(0);
  device.Context(0xc0);
  device.Reading(500);
  device.Sample(500);
  device.Figure(490);
  device.Sample(0);
  device.Sample(0);
  device.Sample(0);
  device.Figure(0);
  device.Sample(0);
  EXPECT_EQ(device.Prices().checkpointed.size(), 1u);
  EXPECT_THAT(device.Prices().missing, IsEmpty());
  EXPECT_EQ(device.WorstResidual(), 0);
}

// The record of the call comes after the figures showed it.
TEST_F(CheckpointsTest, FiguresWithinARecordedCall) {
  device_.Sample(640);
  device_.Sample(100);
  device_.Figure(0);
  device_.Sample(100);
  device_.Checkpoint(true, 4 * DeviceBuilder::kStepNs);
  device_.Sample(100);
  device_.Sample(650);
  device_.Sample(680);
  device_.Checkpoint(false, 3 * DeviceBuilder::kStepNs);
  device_.Sample(680);
  EXPECT_EQ(device_.Prices().checkpointed.size(), 1u);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

}  // namespace
}  // namespace vramscope::resolve::price
