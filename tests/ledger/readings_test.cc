// SPDX-License-Identifier: Apache-2.0
// Readings while several threads are in the driver, and what arrays take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ledger/report_text.h"

namespace vramscope::query {
namespace {

using format::ImplicitKind;
using format::MemoryKind;

class ReadingsTest : public ::testing::Test {
 protected:
  ReadingsTest() {
    gpu_ = trace_.AddGpu();
    host_ = trace_.AddHost();
    trace_.AddProcess(100);
    trace_.On(gpu_);
    trace_.StepIs(50'000);
    trace_.StackIs({}, trace_.Native({"/home/me/solver"}));
    trace_.Sample(10 * kMiB);
    trace_.ContextCreate(0xc0);
    trace_.Reading(510 * kMiB);
    trace_.Sample(510 * kMiB);
    trace_.At(1'000'000);
  }
  trace::Event& Array(uint64_t handle, uint64_t estimate) {
    return trace_.DriverAlloc(handle, estimate, MemoryKind::kArray);
  }
  uint64_t Arrays() { return Row("application / arrays") + Row("application / rounding"); }
  uint64_t Row(const std::string& name) { return RowBytes(ReportOf(trace_, At("end")))[name]; }
  uint64_t Total() { return ReportOf(trace_, At("end")).devices[0].ledger_bytes; }
  // The call of another thread began when the clock showed this.
  static int64_t Since(int64_t after_start_ns) { return TraceBuilder::kStartNs + after_start_ns; }

  TraceBuilder trace_;
  trace::DeviceId gpu_;
  trace::DeviceId host_;
};

TEST_F(ReadingsTest, WhatIsTakenOnceIsNoLinesOwn) {
  trace_.StackIs(trace_.Python({{"/home/me/train.py", 12, "main"}}),
                 trace_.Native({"/x/libcublas.so.13", "/x/libcuda.so.1"}));
  trace_.Implicit(ImplicitKind::kModule, "cuModuleLoadData", "a");
  trace_.Reading(512 * kMiB);
  trace_.DriverAlloc(kBase, 64 * kMiB);
  ReportQuery query = At("end");
  query.by = {Dimension::kLine};
  std::map<std::string, uint64_t> rows = RowBytes(ReportOf(trace_, query));
  EXPECT_EQ(rows["CUDA module code and globals (first used at train.py:12)"], 2 * kMiB);
  EXPECT_EQ(rows["cuBLAS workspace (first used at train.py:12)"], 64 * kMiB);
}

TEST_F(ReadingsTest, AllReadingsDuringALongCallAreTakenBack) {
  trace_.Implicit(ImplicitKind::kModule, "cuModuleLoadData", "a");
  trace_.Reading(510 * kMiB + 2 * kMiB);
  // From here on another thread is inside a cuMemAlloc of 64 MiB, which all three readings show.
  trace_.Implicit(ImplicitKind::kLaunch, "cuLaunchKernel", "k");
  trace_.Reading(512 * kMiB + 64 * kMiB + 4 * kMiB);
  trace_.Reading(516 * kMiB + 64 * kMiB);
  trace_.Implicit(ImplicitKind::kLaunch, "cuLaunchKernel", "l");
  trace_.Reading(516 * kMiB + 64 * kMiB + 6 * kMiB);
  trace_.DriverAlloc(kBase, 64 * kMiB).begin_ns = Since(1'080'000);
  trace_.Reading(522 * kMiB + 64 * kMiB);
  EXPECT_EQ(Total(), 586 * kMiB);
  EXPECT_EQ(Row("driver-owned / context / cuCtxCreate_v4"), 500 * kMiB);
  EXPECT_EQ(Row("driver-owned / module code and globals / cuModuleLoadData a"), 2 * kMiB);
  EXPECT_EQ(Row("driver-owned / first launches (code, local memory) / cuLaunchKernel k + "
                "cuLaunchKernel l"),
            10 * kMiB);
}

// NVML's figure and the driver's differ by a constant at most, which a pair of them shows. Not a
// pair with a reading inside a call that moves memory.
TEST_F(ReadingsTest, ASampleInsideOfACallSaysNothingAboutTheDifferenceToReadings) {
  TraceBuilder trace;
  const trace::DeviceId gpu = trace.AddGpu();
  trace.AddHost();
  trace.AddProcess(100);
  trace.On(gpu);
  trace.StepIs(50'000);
  trace.Sample(10 * kMiB);
  trace.ContextCreate(0xc0);
  trace.Reading(510 * kMiB);
  trace.ContextCreate(0xc1);
  trace.Reading(1010 * kMiB);
  trace.Add(trace::ContextDestroy{.context = 0xc1}).end_ns = Since(500'000);
  trace.Sample(1010 * kMiB);
  trace.At(550'000);
  trace.Reading(510 * kMiB);
  trace.Reading(510 * kMiB);
  trace.DriverAlloc(kBase, 2 * kMiB);
  EXPECT_EQ(ReportOf(trace, At("end")).devices[0].ledger_bytes, 512 * kMiB);
}

TEST_F(ReadingsTest, TheKernelModulesPartOfTwoContextsIsOneRow) {
  trace_.ProcessSample(491 * kMiB);
  trace_.ContextCreate(0xc1);
  trace_.Reading(1000 * kMiB);
  trace_.Sample(1000 * kMiB);
  trace_.ProcessSample(977 * kMiB);
  trace_.DriverAlloc(kBase, 2 * kMiB);
  trace_.Sample(1002 * kMiB);
  const Report report = ReportOf(trace_, At("end"));
  for (const Invariant& invariant : report.invariants)
    EXPECT_TRUE(invariant.holds) << invariant.name << ": " << invariant.detail;
  EXPECT_EQ(report.devices[0].ledger_bytes, 1002 * kMiB);
  EXPECT_EQ(Row("driver-owned / RM-internal"), 13 * kMiB);
}

TEST_F(ReadingsTest, AReadingDuringAnotherThreadsCallPricesNoArray) {
  Array(0xa55, 5 * kMiB);
  trace_.Reading(510 * kMiB + 6 * kMiB + 64 * kMiB);  // another thread's allocation is in it
  trace_.DriverAlloc(kBase, 64 * kMiB).begin_ns = Since(1'020'000);
  EXPECT_EQ(Row("application / allocated"), 64 * kMiB);
  trace_.Reading(510 * kMiB + 6 * kMiB + 64 * kMiB);
  EXPECT_EQ(Arrays(), 6 * kMiB);
  EXPECT_EQ(Total(), 580 * kMiB);
}

TEST_F(ReadingsTest, APriceOfAnUnclearReadingIsTakenBack) {
  Array(0xa55, 5 * kMiB);
  Array(0xa56, 5 * kMiB);
  trace_.Reading(510 * kMiB + 12 * kMiB + 64 * kMiB);
  trace_.DriverFree(0xa55, MemoryKind::kArray);
  trace_.Implicit(ImplicitKind::kModule, "cuModuleLoadData", "a");
  trace_.DriverAlloc(kBase, 64 * kMiB).begin_ns = Since(1'060'000);
  trace_.Reading(510 * kMiB + 5 * kMiB + 64 * kMiB + 3 * kMiB);
  EXPECT_EQ(Arrays(), 5 * kMiB);
  EXPECT_EQ(Row("driver-owned / module code and globals / cuModuleLoadData a"), 3 * kMiB);
  EXPECT_EQ(Total(), 582 * kMiB);
}

// Then only the sum is known. The free of one with a wrong size has no cause.
TEST_F(ReadingsTest, AnEstimateThatNoReadingCorrectedGoesWithItsArray) {
  Array(0xa55, 5 * kMiB);
  trace_.Implicit(ImplicitKind::kModule, "cuModuleLoadData", "a");
  trace_.Reading(510 * kMiB + 6 * kMiB + 3 * kMiB);
  EXPECT_EQ(Arrays(), 5 * kMiB);
  EXPECT_EQ(Row("driver-owned / module code and globals / cuModuleLoadData a"), 4 * kMiB);
  trace_.DriverFree(0xa55, MemoryKind::kArray);
  trace_.Reading(510 * kMiB + 3 * kMiB);
  EXPECT_EQ(Row("driver-owned / module code and globals / cuModuleLoadData a"), 3 * kMiB);
  EXPECT_EQ(Total(), 513 * kMiB);
}

TEST_F(ReadingsTest, ArraysThatWerePricedTogetherAreToldApartWhenOneGoes) {
  Array(0xa55, 5 * kMiB);
  Array(0xa56, 5 * kMiB);
  trace_.Reading(510 * kMiB + 6 * kMiB + 8 * kMiB);
  EXPECT_EQ(Arrays(), 14 * kMiB);
  trace_.DriverFree(0xa55, MemoryKind::kArray);
  trace_.Reading(510 * kMiB + 8 * kMiB);
  EXPECT_EQ(Arrays(), 8 * kMiB);
  EXPECT_EQ(Total(), 518 * kMiB);
}

TEST_F(ReadingsTest, AContextTakesItsPinnedMemoryWithIt) {
  trace_.On(host_);
  trace_.DriverAlloc(kBase, 100 * kMiB, MemoryKind::kHostPinned).As<trace::Alloc>().context = 0xc0;
  trace_.On(gpu_);
  trace_.Add(trace::ContextDestroy{.context = 0xc0});
  trace_.At(3'000'000);
  trace_.Reading(10 * kMiB);
  const auto timelines = *MakeTimelines(*Analyse(trace_), 100);
  const auto host = std::find_if(timelines.begin(), timelines.end(), [&](const Timeline& timeline) {
    return timeline.device.value == static_cast<uint32_t>(host_.value) + 1;
  });
  ASSERT_NE(host, timelines.end());
  ASSERT_EQ(host->peak.size(), 1u);
  EXPECT_EQ(*std::max_element(host->peak[0].begin(), host->peak[0].end()), 100 * kMiB);
  EXPECT_EQ(host->peak[0].back(), 0u);
}

}  // namespace
}  // namespace vramscope::query
