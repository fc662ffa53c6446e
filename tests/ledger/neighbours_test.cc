// SPDX-License-Identifier: Apache-2.0
// Unrecorded processes allocate and free memory of the same GPU, also while a call is attributed by
// readings of the device. NVML's figure of the process then says what is its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/report_text.h"

namespace vramscope::query {
namespace {

using format::ImplicitKind;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

constexpr char kContext[] = "driver-owned / context / cuCtxCreate_v4";

// The recorded process has a context of 500 MiB, and the kernel module 10 MiB for it.
class NeighboursTest : public ::testing::Test {
 protected:
  NeighboursTest() {
    trace_.On(trace_.AddGpu());
    process_ = trace_.AddProcess(100);
    trace_.StepIs(50'000);
    trace_.StackIs({}, trace_.Native({"/home/me/solver"}));
  }
  // The list of processes: of this one, where it is listed, and of another one.
  void Figures(uint64_t own, uint64_t other) {
    if (listed_ && own != 0)
      trace_.ProcessSample(own * kMiB);
    if (listed_) {
      trace_.ProcessSample(other * kMiB).process = trace::kNoProcess;
    }
  }
  // Others have `before` MiB before the context is made, and `after` MiB afterwards.
  void Context(uint64_t before, uint64_t after) {
    trace_.Sample(before * kMiB);
    Figures(0, before);
    trace_.ContextCreate(0xc0);
    trace_.Reading((510 + after) * kMiB);
    trace_.Sample((510 + after) * kMiB);
    Figures(500, after);
    trace_.Mark("at rest");
    trace_.At(2'000'000);
  }
  Report AtRest() { return ReportOf(trace_, At("mark:at rest")); }
  uint64_t OfProcess(const Report& report) { return report.processes[0].ledger_bytes / kMiB; }
  void EndsWith(uint64_t own) {
    const Report report = ReportOf(trace_, At("end"));
    EXPECT_EQ(OfProcess(report), own);
    EXPECT_EQ(report.processes[0].nvml_bytes, own * kMiB);
    EXPECT_EQ(report.processes[0].residual_bytes, 0);
    EXPECT_EQ(BrokenInvariants(report, kBesideNvml), "");
  }

  TraceBuilder trace_;
  trace::ProcessId process_;
  bool listed_ = true;
};

// NVML may count memory of several processes with each of them, and the ledger counts it once.
TEST_F(NeighboursTest, FiguresWithSharedMemorySayNothing) {
  Context(1000, 1000);
  trace_.DriverAlloc(kBase, 100 * kMiB, format::MemoryKind::kIpcImport);
  trace_.Add(trace::Share{.kind = format::ShareKind::kImport, .address = kBase, .key = 77});
  trace_.Implicit(ImplicitKind::kLaunch, "cuLaunchKernel", "k");
  trace_.Reading(1510 * kMiB);
  trace_.Sample(1510 * kMiB);
  Figures(600, 1000);
  EXPECT_EQ(OfProcess(ReportOf(trace_, At("end"))), 500);
}

TEST_F(NeighboursTest, WhatAnotherTakesMeanwhileIsNotTheContexts) {
  Context(1000, 1300);
  EndsWith(500);
  const auto rows = RowBytes(AtRest());
  EXPECT_THAT(rows, Contains(Pair(kContext, 500 * kMiB)));
  EXPECT_THAT(rows, Contains(Pair("other processes", 1310 * kMiB)));  // with the kernel module's
  EXPECT_EQ(AtRest().devices[0].residual_bytes, 0);
  EXPECT_EQ(AtRest().residuals[0].estimated_bytes, 1810 * kMiB);
}

TEST_F(NeighboursTest, WhatAnotherGivesBackMeanwhileDoesNotHideTheContext) {
  Context(1000, 800);
  EndsWith(500);
  EXPECT_THAT(RowBytes(AtRest()), Contains(Pair(kContext, 500 * kMiB)));
}

TEST_F(NeighboursTest, AContextIsThereThoughTheDeviceSank) {
  Context(1000, 0);
  EndsWith(500);
  EXPECT_THAT(RowBytes(AtRest()), Contains(Pair(kContext, 500 * kMiB)));
  // Its row begins at the reading, also in the timeline.
  const auto timelines = *MakeTimelines(*Analyse(trace_), 100);
  uint64_t most = 0;
  for (size_t band = 0; band < timelines[0].groups.size(); ++band) {
    if (timelines[0].groups[band] == "driver")
      most = *std::max_element(timelines[0].peak[band].begin(), timelines[0].peak[band].end());
  }
  EXPECT_EQ(most, 500 * kMiB);
}

TEST_F(NeighboursTest, AContextIsThereThoughNothingShowed) {
  Context(1000, 490);
  EndsWith(500);
  EXPECT_THAT(RowBytes(AtRest()), Contains(Pair(kContext, 500 * kMiB)));
}

TEST_F(NeighboursTest, WhatOthersGotLaterAndGaveBackIsNoRowOfAnybody) {
  Context(1000, 1000);
  trace_.Sample(1710 * kMiB);  // 200 more
  Figures(500, 1200);
  trace_.Implicit(ImplicitKind::kLaunch, "cuLaunchKernel", "k");  // takes 92
  trace_.Reading((510 + 92) * kMiB);                              // and nothing is left of theirs
  trace_.Sample((510 + 92) * kMiB);
  Figures(592, 0);
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Sample((530 + 92) * kMiB);
  Figures(612, 0);
  EndsWith(612);
  const auto rows = RowBytes(ReportOf(trace_, At("end")));
  EXPECT_THAT(rows, Contains(Pair(kContext, 500 * kMiB)));
  EXPECT_THAT(rows, Contains(Pair("driver-owned / first launches (code, local memory) / "
                                  "cuLaunchKernel k",
                                  92 * kMiB)));
}

// Up and down all the time, by more than anything that is priced here.
TEST_F(NeighboursTest, OneThatBreathes) {
  uint64_t other = 1000;
  const auto breathe = [&] { return other = other == 1000 ? 1700 : 1000; };
  Context(1000, breathe());
  uint64_t own = 500;
  for (uint64_t i = 0; i < 20; ++i) {
    trace_.DriverAlloc(kBase + i * 64 * kMiB, 20 * kMiB);
    trace_.Reading((own + 10 + 20 + breathe()) * kMiB);
    trace_.Implicit(ImplicitKind::kModule, "cuModuleLoadData", "m" + std::to_string(i));
    own += 20 + 4;
    if (i % 3 != 0)
      breathe();
    trace_.Reading((own + 10 + other) * kMiB);
    breathe();
    trace_.Sample((own + 10 + other) * kMiB);
    Figures(own, other);
  }
  trace_.DriverAlloc(kBase + 4096 * kMiB, 20 * kMiB);
  own += 20;
  trace_.Sample((own + 10 + other) * kMiB);
  Figures(own, other);
  EndsWith(own);
  const auto rows = RowBytes(ReportOf(trace_, At("end")));
  EXPECT_THAT(rows, Contains(Pair(kContext, 500 * kMiB)));
  for (int i = 0; i < 20; ++i)
    EXPECT_THAT(rows, Contains(Pair("driver-owned / module code and globals / cuModuleLoadData m" +
                                        std::to_string(i),
                                    4 * kMiB)));
}

TEST_F(NeighboursTest, MemoryOfOthersBetweenAReadingAndASampleIsNoConstantDifference) {
  trace_.Sample(1000 * kMiB);
  Figures(0, 1000);
  trace_.ContextCreate(0xc0);
  Figures(500, 1000);
  trace_.Reading(1510 * kMiB);
  trace_.Sample(1000 * kMiB);  // the other gave 510 back
  Figures(500, 490);
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Sample(1020 * kMiB);
  const Report report = ReportOf(trace_, At("end"));
  EXPECT_THAT(RowBytes(report), Contains(Pair(kContext, 500 * kMiB)));
  EXPECT_THAT(report.invariants.back().detail, Not(HasSubstr("cuMemGetInfo")));
}

TEST_F(NeighboursTest, AFigureThatComesLateIsMadeGood) {
  trace_.Sample(1000 * kMiB);
  Figures(0, 1000);
  trace_.ContextCreate(0xc0);
  trace_.Reading(1210 * kMiB);
  trace_.Sample(1210 * kMiB);
  Figures(140, 700);  // of a moment before
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Sample(1230 * kMiB);
  Figures(520, 700);
  trace_.DriverAlloc(kBase + 64 * kMiB, 20 * kMiB);
  trace_.Sample(1250 * kMiB);
  Figures(540, 700);
  EndsWith(540);
  EXPECT_THAT(RowBytes(ReportOf(trace_, At("end"))), Contains(Pair(kContext, 500 * kMiB)));
}

// A process that is killed gives its memory back bit by bit, and NVML sees it.
TEST_F(NeighboursTest, FiguresOfAProcessThatEndsSayNothing) {
  trace_.Sample(1000 * kMiB);
  Figures(0, 1000);
  trace_.ContextCreate(0xc0);
  trace_.Reading(1510 * kMiB);
  trace_.Sample(1510 * kMiB);
  Figures(500, 1000);
  trace_.Implicit(ImplicitKind::kLaunch, "cuLaunchKernel", "k");
  trace_.Reading(1602 * kMiB);
  trace_.Sample(1102 * kMiB);
  Figures(100, 1000);
  trace_.ProcessEnd();
  const auto rows = RowBytes(ReportOf(trace_, At("end")));
  EXPECT_THAT(rows, Contains(Pair(kContext, 500 * kMiB)));
}

// In a container NVML lists nothing, or other numbers: then nothing is known but the readings.
TEST_F(NeighboursTest, WithoutFiguresTheReadingsStand) {
  listed_ = false;
  Context(1000, 1300);
  const Report report = AtRest();
  EXPECT_EQ(OfProcess(report), 810u);
  EXPECT_THAT(RowBytes(report), Contains(Pair(kContext, 810 * kMiB)));
  EXPECT_THAT(RowBytes(report), Contains(Pair("other processes", 1000 * kMiB)));
}

TEST_F(NeighboursTest, WithOtherProcessesFiguresAloneTheReadingsStand) {
  trace_.Sample(1000 * kMiB);
  Figures(0, 1000);
  trace_.ContextCreate(0xc0);
  trace_.Reading(1810 * kMiB);
  trace_.Sample(1810 * kMiB);
  Figures(0, 1800);
  trace_.Mark("at rest");
  EXPECT_THAT(RowBytes(AtRest()), Contains(Pair(kContext, 810 * kMiB)));
}

// Two recorded ones begin at once, beside a third one.
TEST_F(NeighboursTest, ContextsMadeAtOnceBesideOneThatGivesBack) {
  const trace::ProcessId second = trace_.AddProcess(200);
  trace_.Sample(1000 * kMiB);
  Figures(0, 1000);
  trace_.ContextCreate(0xc0);
  trace_.In(second);
  trace_.ContextCreate(0xc1);
  trace_.In(process_);
  trace_.Reading(1300 * kMiB);
  trace_.In(second);
  trace_.Reading(1320 * kMiB);  // 1000 of theirs, 700 less of others
  trace_.Sample(1320 * kMiB);
  Figures(500, 300);
  trace_.In(process_);
  Figures(500, 300);
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Sample(1340 * kMiB);
  Figures(520, 300);
  trace_.Mark("quiet");
  const Report report = ReportOf(trace_, At("end"));
  EXPECT_EQ(report.processes[0].ledger_bytes, 520 * kMiB);
  EXPECT_EQ(report.processes[1].ledger_bytes, 500 * kMiB);
  EXPECT_EQ(BrokenInvariants(report, kBesideNvml), "");
}

}  // namespace
}  // namespace vramscope::query
