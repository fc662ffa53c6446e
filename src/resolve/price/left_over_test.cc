// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/left_over.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "resolve/price/device_builder.h"

namespace vramscope::resolve::price {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class LeftOverTest : public ::testing::Test {
 protected:
  LeftOverTest() { device_.AddProcess(); }
  DeviceBuilder device_;
};

TEST_F(LeftOverTest, APrimaryContextKeepsItsMemoryOverItsEnd) {
  device_.Sample(0);
  device_.Primary();
  device_.Reading(520);
  device_.Launch("k");
  device_.Reading(612);
  for (int turn = 0; turn < 3; ++turn) {
    device_.Moved(40);
    device_.Sample(652);
    device_.Moved(-40);  // with the reset
    device_.Reset();
    device_.Sample(612);
    device_.Primary();
    device_.Reading(612);
    device_.Sample(612);
  }
  EXPECT_EQ(device_.WorstResidual(), 0);
  EXPECT_THAT(device_.Rows(),
              ElementsAre(Pair("context: cuDevicePrimaryCtxRetain", 520),
                          Pair("first launches (code, local memory): cuLaunchKernel k", 92)));
}

TEST_F(LeftOverTest, WhatAPrimaryContextGivesBackAtItsEndIsSeenByTheNextSample) {
  device_.Sample(0);
  device_.Primary();
  device_.Reading(520);
  device_.Launch("k");
  device_.Reading(612);
  device_.Reset();
  device_.Sample(580);
  EXPECT_THAT(device_.Rows(),
              ElementsAre(Pair("context: cuDevicePrimaryCtxRetain", 520),
                          Pair("first launches (code, local memory): cuLaunchKernel k", 60)));
  // A driver that keeps nothing.
  device_.Sample(3);
  device_.Primary();
  device_.Reading(523);
  device_.Sample(523);
  device_.End();
  EXPECT_EQ(device_.WorstResidual(), 0);
  EXPECT_EQ(device_.Total(), 0);
}

// As on an H100: NVML no longer lists the process, but it is not checkpointed.
TEST_F(LeftOverTest, WhereAPrimaryContextKeepsNothingTheKernelModulesPartGoesToo) {
  device_.Sample(0);
  for (int turn = 0; turn < 3; ++turn) {
    device_.Primary();
    device_.Reading(520);
    device_.Sample(520);
    device_.Figure(511);
    device_.Moved(40);
    device_.Sample(560);
    device_.Figure(551);
    EXPECT_THAT(device_.Rows(), ElementsAre(Pair("RM-internal", 9),
                                            Pair("context: cuDevicePrimaryCtxRetain", 511)));
    device_.Moved(-40);
    device_.Reset().when.end_ns += 3 * DeviceBuilder::kStepNs;
    device_.Figure(0);
    device_.Sample(400);
    device_.Next();
    device_.Sample(3);
    device_.Figure(0);
    device_.Sample(3);
    EXPECT_THAT(device_.Rows(), ElementsAre(Pair("RM-internal", 3)));
  }
  device_.End();
  EXPECT_TRUE(device_.Prices().checkpointed.empty());
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(LeftOverTest, AnEndThatTakesTimeIsUnderWay) {
  device_.Sample(0);
  device_.Primary();
  device_.Reading(520);
  device_.Sample(520);
  device_.Figure(511);
  device_.Reset().when.end_ns += 4 * DeviceBuilder::kStepNs;
  device_.Sample(500);
  device_.Sample(3);
  device_.Next();
  device_.End();
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// As on an H100: 8.8 MiB for the first of two processes, 5.6 for the other one, and 8.8 are left.
TEST_F(LeftOverTest, AnEndLeavesWhatTheKernelModuleHasForTheGpu) {
  for (const bool other_ends_too : {false, true}) {
    DeviceBuilder device;
    device.AddProcess();
    device.Sample(0);
    device.Primary();
    device.Reading(520);
    device.Sample(520);
    device.Figure(511);
    device.AddProcess();
    device.Primary();
    device.Reading(1037);
    device.Sample(1037);
    device.Figure(511);
    if (other_ends_too)
      device.Teardown();
    device.In(0);
    device.End();
    const int64_t left_ns = device.Sample(520).when.time_ns;
    device.Sample(other_ends_too ? 517 : 520);
    device.In(1);
    device.End(20 * DeviceBuilder::kStepNs);
    device.Sample(0);
    EXPECT_EQ(device.Rows(left_ns)["RM-internal"], 9);
    EXPECT_EQ(device.WorstResidual(), 0);
    EXPECT_EQ(device.Total(), 0);
  }
}

TEST_F(LeftOverTest, AContextThatHasThePrimaryOnesHandleTakesOnlyItsOwn) {
  device_.Sample(0);
  device_.Primary();
  device_.Reading(520);
  device_.Reset();
  device_.Context(1);
  device_.Reading(1040);
  device_.Destroy(1);
  device_.Sample(520);
  EXPECT_EQ(device_.WorstResidual(), 0);
  EXPECT_THAT(device_.Rows(), ElementsAre(Pair("context: cuDevicePrimaryCtxRetain", 520)));
}

}  // namespace
}  // namespace vramscope::resolve::price
