// SPDX-License-Identifier: Apache-2.0
// Processes that share a GPU: each has its own ledger, and the device has the sum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/report_text.h"

namespace vramscope::query {
namespace {

using ::testing::Contains;
using ::testing::Pair;

class SeveralProcessesTest : public ::testing::Test {
 protected:
  SeveralProcessesTest() {
    trace_.On(trace_.AddGpu());
    first_ = trace_.AddProcess(100);
    second_ = trace_.AddProcess(200);
    trace_.StepIs(50'000);
  }
  // Two contexts of 500 MiB, begun before either is ready, with 10 MiB of the kernel module's own.
  void ContextsAtOnce() {
    trace_.Sample(0);
    trace_.In(first_);
    trace_.ContextCreate(0xc0);
    trace_.In(second_);
    trace_.ContextCreate(0xc1);
    trace_.Sample(150 * kMiB);
    trace_.In(first_);
    trace_.Reading(600 * kMiB);
    trace_.Sample(700 * kMiB);
    trace_.Reading(800 * kMiB);  // the other's continues to grow without calls
    trace_.In(second_);
    trace_.Reading(1010 * kMiB);
    trace_.Sample(1010 * kMiB);
  }
  std::map<uint32_t, uint64_t> LedgerByPid(const Report& report) {
    std::map<uint32_t, uint64_t> bytes;
    for (const auto& process : report.processes)
      bytes[process.pid] = process.ledger_bytes;
    return bytes;
  }

  TraceBuilder trace_;
  trace::ProcessId first_;
  trace::ProcessId second_;
};

TEST_F(SeveralProcessesTest, WhatAForkedChildFreesIsItsParents) {
  trace_.On(trace_.AddCpu());
  const trace::ProcessId third = trace_.AddProcess(300);
  for (const trace::ProcessId child : {second_, third}) {
    trace_.ParentIs(child, first_);
    trace_.IsForked(child);
  }
  trace_.In(first_);
  trace_.Alloc(0x1000, 100);
  trace_.Alloc(0x2000, 50);
  trace_.In(second_);
  trace_.Alloc(0x3000, 7);
  trace_.Free(0x1000, 100);  // the parent still has it
  trace_.In(first_);
  trace_.Free(0x2000, 50);
  trace_.In(second_);
  trace_.Free(0x2000, 50);
  trace_.In(third);
  trace_.Free(0x2000, 50);
  trace_.Free(0x9000, 3);  // of a grandparent, say
  const Report report = ReportOf(trace_, At("end"));
  EXPECT_EQ(LedgerByPid(report)[100], 100u);
  EXPECT_EQ(LedgerByPid(report)[200], 7u);
  EXPECT_EQ(BrokenInvariants(report), "");
  ASSERT_EQ(report.losses.size(), 1u);
  EXPECT_EQ(report.losses[0].name, "frees of memory inherited by fork");
  EXPECT_EQ(report.losses[0].count, 3u);
  EXPECT_EQ(report.losses[0].bytes, 103u);
}

TEST_F(SeveralProcessesTest, ContextsMadeAtOnceAreToldApartByTheProcessesFigures) {
  ContextsAtOnce();
  trace_.In(first_);
  trace_.ProcessSample(500 * kMiB);
  trace_.In(second_);
  trace_.ProcessSample(500 * kMiB);
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.ProcessSample(520 * kMiB);
  trace_.Sample(1030 * kMiB);
  trace_.Mark("quiet");
  const Report report = ReportOf(trace_);
  EXPECT_THAT(LedgerByPid(report),
              ::testing::ElementsAre(Pair(100u, 500 * kMiB), Pair(200u, 520 * kMiB)));
  EXPECT_THAT(RowBytes(report), Contains(Pair("driver-owned / RM-internal", 10 * kMiB)));
  EXPECT_EQ(report.devices[0].ledger_bytes, 1030 * kMiB);
  EXPECT_EQ(BrokenInvariants(report), "");
}

TEST_F(SeveralProcessesTest, AContextThatStillGrowsIsNoConstantDifference) {
  ContextsAtOnce();
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Sample(1030 * kMiB);
  const Report report = ReportOf(trace_);
  ASSERT_EQ(report.residuals.size(), 1u);
  EXPECT_EQ(report.residuals[0].worst_bytes, 0);
  EXPECT_EQ(report.devices[0].residual_bytes, 0);
  EXPECT_EQ(report.devices[0].ledger_bytes, 1030 * kMiB);
}

}  // namespace
}  // namespace vramscope::query
