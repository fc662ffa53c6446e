// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/managed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "resolve/price/device_builder.h"

namespace vramscope::resolve::price {
namespace {

using format::Part;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr char kUvm[] = "UVM driver";
constexpr char kLaunch[] = "first launches (code, local memory): cuLaunchKernel k";

// NVML's figures of the device are `used_`, and those of the process 520 in what follows.
class ManagedTest : public ::testing::Test {
 protected:
  ManagedTest() {
    device_.AddProcess();
    device_.Sample(0);
    device_.Context(1);
    device_.Reading(520);
    device_.Sample(520);
    device_.Figure(520);
  }
  DeviceBuilder device_;
};

TEST_F(ManagedTest, WhatIsTouchedIsResidentAndTheRestTheDriversSpare) {
  const uint32_t first = device_.Managed(64);
  device_.Sample(520);
  device_.Sample(648);
  EXPECT_THAT(device_.Rows(),
              ElementsAre(Pair(kUvm, 64), Pair(kContext, 520), Pair("managed 0", 64)));
  const uint32_t second = device_.Managed(300);
  device_.Sample(648);
  device_.Sample(904);
  EXPECT_THAT(device_.Rows(), ElementsAre(Pair(kUvm, 20), Pair(kContext, 520),
                                          Pair("managed 0", 64), Pair("managed 1", 300)));
  device_.FreeManaged(second);
  device_.Sample(604);
  device_.FreeManaged(first);
  device_.Sample(540);
  device_.Figure(520);
  EXPECT_THAT(device_.Rows(), ElementsAre(Pair(kUvm, 20), Pair(kContext, 520)));
  device_.Teardown();
  device_.End();
  device_.Sample(0);
  EXPECT_THAT(device_.Rows(), IsEmpty());
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(ManagedTest, WhatTheDriverKeepsOfAFreeIsItsOwn) {
  const uint32_t number = device_.Managed(1);
  device_.Sample(586);
  device_.FreeManaged(number);
  device_.Sample(586);
  EXPECT_THAT(device_.Rows(), ElementsAre(Pair(kUvm, 66), Pair(kContext, 520)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(ManagedTest, ALaunchThatTouchesIsNoCode) {
  device_.Managed(64);
  device_.Launch("k");
  device_.Reading(648);
  device_.Sample(648);
  device_.Figure(520);
  EXPECT_THAT(device_.Rows(),
              ElementsAre(Pair(kUvm, 64), Pair(kContext, 520), Pair("managed 0", 64)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(ManagedTest, TheFigureOfTheProcessTellsCodeFromPages) {
  device_.Managed(64);
  device_.Launch("k");
  device_.Reading(740);  // 128 and 92
  device_.Sample(740);
  device_.Figure(612);
  EXPECT_THAT(device_.Rows(), ElementsAre(Pair(kUvm, 64), Pair(kContext, 520), Pair(kLaunch, 92),
                                          Pair("managed 0", 64)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(ManagedTest, AndPagesFromCode) {
  device_.Managed(64);
  device_.Sample(584);  // resident, none to spare
  device_.Launch("k");
  device_.Reading(648);
  device_.Sample(648);
  device_.Figure(520);
  EXPECT_THAT(device_.Rows(),
              ElementsAre(Pair(kUvm, 64), Pair(kContext, 520), Pair("managed 0", 64)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(ManagedTest, ASampleDuringACallIsComparedWithWhatMayHaveMoved) {
  device_.Managed(64);
  device_.Sample(520);
  const When during = device_.Sample(590).when;
  device_.Moved(0).when = {during.time_ns, during.begin_ns - 1000, during.end_ns + 1000};
  device_.Sample(648);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST(Managed, PagesThatGoBehindTheLastReadingAreNoOffset) {
  DeviceBuilder device;
  device.AddProcess();
  device.Sample(0);
  device.Context(1);
  const uint32_t number = device.Managed(64);
  device.Reading(522);
  device.FreeManaged(number);
  device.Sample(520);
  device.Sample(520);
  EXPECT_EQ(device.Prices().reading_offset.value_or(0), 0);
}

TEST_F(ManagedTest, MoreThanCanBeManagedIsNot) {
  device_.Managed(8);
  device_.Sample(1520);
  device_.Sample(1520);
  const auto rows = device_.Rows();
  EXPECT_EQ(rows.at("managed 0"), 8);
  EXPECT_EQ(rows.at(kUvm), 130);
  EXPECT_EQ(rows.at("unexplained"), 862);
}

TEST_F(ManagedTest, WithoutManagedMemoryNothingIs) {
  device_.Sample(648);
  device_.Sample(648);
  EXPECT_THAT(device_.Rows(), ElementsAre(Pair(kContext, 520), Pair("unexplained", 128)));
}

// Kernels run on when their launch has returned: pages come until the reading that shows them.
TEST_F(ManagedTest, PagesComeWhileTheKernelRuns) {
  device_.Managed(256);
  device_.Launch("k");
  device_.Sample(520 + 32);
  device_.Sample(520 + 160);
  device_.At(device_.now_ns() + 20'000'000);
  device_.Reading(520 + 256);
  device_.Sample(520 + 256);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// It was on the host, or the driver keeps its chunks: the call beside it took nothing.
TEST_F(ManagedTest, WhatWasFreedIsStillTheDriversBesideAnyCall) {
  const uint32_t memory = device_.Managed(64);
  device_.Sample(520);
  device_.Sample(648);
  device_.FreeManaged(memory);
  device_.Implicit(Part::kLimits, "cuCtxSetLimit");
  device_.Reading(648);
  EXPECT_THAT(device_.Rows(), ElementsAre(Pair(kUvm, 128), Pair(kContext, 520)));
}

// Each allocation has chunks of 2 MiB of its own.
TEST_F(ManagedTest, AFreeLeavesTheOthersTheirChunks) {
  device_.Managed(1);
  const uint32_t memory = device_.Managed(64);
  device_.Sample(520);
  device_.Sample(520 + 65);
  device_.FreeManaged(memory);
  // Before a figure tells.
  EXPECT_THAT(device_.Rows(),
              ElementsAre(Pair(kUvm, 1), Pair(kContext, 520), Pair("managed 0", 1)));
  device_.Sample(520 + 2);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// A reset freed other managed memory, and what the driver kept of that seemed to be the launches'.
TEST_F(ManagedTest, WhatIsFreedAndWasInNoRowIsTakenFromTheDriversRows) {
  device_.Launch("k");
  device_.Reading(552);
  device_.Sample(552);
  const uint32_t memory = device_.Managed(26);
  device_.Managed(1);
  device_.FreeManaged(memory);
  device_.Reading(526);
  device_.Sample(526);
  EXPECT_THAT(device_.Rows(), ElementsAre(Pair(kContext, 520), Pair(kLaunch, 6)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// NVML's figure of the process tells that it was the launch, and not pages; a prefetch never is.
TEST_F(ManagedTest, AFigureGivesALaunchWhatLookedLikePages) {
  device_.Managed(64);
  device_.Launch("k");
  device_.Reading(520 + 70);
  device_.Implicit(Part::kUvmDriver, "cuMemPrefetchAsync");
  device_.At(device_.now_ns() + 20'000'000);
  device_.Reading(520 + 70 + 64);
  device_.Sample(520 + 70 + 64);
  device_.Figure(520 + 70);
  const auto rows = device_.Rows();
  EXPECT_EQ(rows.at(kLaunch), 70);
  EXPECT_EQ(rows.at("managed 0"), 64);
  EXPECT_EQ(rows.size(), 3u);
}

// The reading was taken before the kernel touched a page: what it shows is all the launch's. Pages
// that came with the next sample were too many for managed memory, by what it seemed to have.
TEST_F(ManagedTest, Figure_GivesALaunchWhatLookedLikePages_UnexplainedBytesBecomePages) {
  device_.Managed(64);
  device_.Managed(36);
  device_.Launch("k");
  device_.Reading(520 + 194);
  device_.Sample(520 + 194 + 128);
  device_.Sample(520 + 194 + 128);
  EXPECT_EQ(device_.Rows().at("unexplained"), 24);
  device_.Figure(520 + 194);
  EXPECT_THAT(device_.Rows(), ElementsAre(Pair(kUvm, 28), Pair(kContext, 520), Pair(kLaunch, 194),
                                          Pair("managed 0", 64), Pair("managed 1", 36)));
  const DevicePrices prices = device_.Prices();
  for (const Step& step : prices.steps)
    EXPECT_NE(prices.counters[step.counter].part, Part::kUnexplained);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// A primary context of 520 MiB, whose heap has 54 more.
void MakePrimaryWithHeap(DeviceBuilder* device) {
  device->AddProcess();
  device->Sample(0);
  device->Primary();
  device->Reading(520);
  device->Implicit(Part::kLimits, "cuCtxSetLimit").context = 1;
  device->Reading(520 + 54);
}

// By sizes 32 MiB of managed memory went, but only 14 of it had been on the device.
TEST(Managed, Reset_FreesManagedMemoryToo_TheContextsOwnMemoryGoesFirst) {
  DeviceBuilder device;
  MakePrimaryWithHeap(&device);
  const uint32_t untouched = device.Managed(18);
  const uint32_t touched = device.Managed(14);
  const uint32_t of_other_context = device.Managed(36);
  device.Implicit(Part::kUvmDriver, "cuMemPrefetchAsync").only_takes = true;
  device.Reading(520 + 54 + 64);
  device.FreeManaged(untouched);
  device.FreeManaged(touched);
  device.Reset();
  device.Reading(520 + 50);
  const char* const context = "context: cuDevicePrimaryCtxRetain";
  EXPECT_THAT(device.Rows(),
              ElementsAre(Pair(kUvm, 14), Pair(context, 520), Pair("managed 2", 36)));
  device.FreeManaged(of_other_context);
  device.Reading(520 + 14);
  device.Sample(520 + 14);
  EXPECT_THAT(device.Rows(), ElementsAre(Pair(kUvm, 14), Pair(context, 520)));
  EXPECT_EQ(device.WorstResidual(), 0);
}

// A driver that keeps all that the context has: what went is just what was freed.
TEST(Managed, Reset_FreesWhatWasManaged_TheContextKeepsItsMemory) {
  DeviceBuilder device;
  MakePrimaryWithHeap(&device);
  const uint32_t memory = device.Managed(64);
  device.Implicit(Part::kUvmDriver, "cuMemPrefetchAsync").only_takes = true;
  device.Reading(520 + 54 + 128);
  device.FreeManaged(memory);
  device.Reset();
  device.Reading(520 + 54 + 64);
  EXPECT_THAT(device.Rows(),
              ElementsAre(Pair(kUvm, 64), Pair("context: cuDevicePrimaryCtxRetain", 520),
                          Pair("limits (stack, heap, printf FIFO): cuCtxSetLimit", 54)));
}

// The end of a context takes nothing: what came beside it came with the prefetch.
TEST_F(ManagedTest, PagesMoveBesideTheEndOfAContext) {
  device_.Context(2);
  device_.Reading(1040);
  const uint32_t memory = device_.Managed(64);
  device_.Implicit(Part::kUvmDriver, "cuMemPrefetchAsync");
  device_.FreeManaged(memory);
  device_.Destroy(2);
  device_.Reading(520 + 62);
  device_.Sample(520 + 62);
  EXPECT_THAT(device_.Rows(), ElementsAre(Pair(kUvm, 62), Pair(kContext, 520)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

}  // namespace
}  // namespace vramscope::resolve::price
