// SPDX-License-Identifier: Apache-2.0
// Processes whose device memory the driver moves to host memory and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/report_text.h"

namespace vramscope::query {
namespace {

using format::CheckpointKind;
using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr int64_t kMs = 1'000'000;

class AbsencesTest : public ::testing::Test {
 protected:
  AbsencesTest() {
    gpu_ = trace_.AddGpu();
    host_ = trace_.AddHost();
    process_ = trace_.AddProcess(100);
    trace_.On(gpu_);
    trace_.StepIs(kMs);
    torch_ = trace_.Native({"/v/torch/lib/libc10_cuda.so"});
  }

  // 500 MiB of context, 10 of them the kernel module's own; PyTorch with 60 of 80 MiB; others' 100.
  void Begin() {
    trace_.Sample(100 * kMiB);
    trace_.ContextCreate(0xc0);
    trace_.Reading(600 * kMiB);
    trace_.Sample(600 * kMiB);
    trace_.ProcessSample(490 * kMiB);
    trace_.StackIs({}, torch_);
    trace_.DriverAlloc(kBase, 80 * kMiB);
    trace_.Alloc(kBase, 40 * kMiB);
    trace_.Alloc(kBase + 40 * kMiB, 20 * kMiB);
    trace_.On(host_);
    trace_.DriverAlloc(kBase + (1 << 30), 4 * kMiB, format::MemoryKind::kHostPinned);
    trace_.On(gpu_);
    trace_.Sample(680 * kMiB);
    trace_.ProcessSample(570 * kMiB);
    trace_.Mark("before");
  }
  static std::map<std::string, uint64_t> Present() {
    return {{"driver-owned / context / cuCtxCreate_v4", 490 * kMiB},
            {"driver-owned / RM-internal", 10 * kMiB},
            {"PyTorch / allocated", 60 * kMiB},
            {"PyTorch / fragmentation", 20 * kMiB},
            {"PyTorch / pinned", 4 * kMiB},
            {"other processes", 100 * kMiB}};
  }
  static std::map<std::string, uint64_t> Away() {
    return {{"PyTorch / pinned", 4 * kMiB}, {"other processes", 100 * kMiB}};
  }
  void Checkpoint(CheckpointKind kind, int64_t lasts_ns = 0) {
    trace_.Add(trace::Checkpoint{.kind = kind}).begin_ns -= lasts_ns;
  }
  Report ReportAt(const std::string& when) {
    Report report = ReportOf(trace_, At(when));
    EXPECT_EQ(BrokenInvariants(report), "") << when;
    EXPECT_THAT(report.losses, IsEmpty()) << when;
    EXPECT_EQ(report.residuals.at(0).worst_bytes, 0) << when;
    EXPECT_EQ(report.devices.at(0).residual_bytes, 0) << when;
    return report;
  }
  std::map<std::string, uint64_t> Rows(const std::string& when) {
    auto rows = RowBytes(ReportAt(when));
    std::erase_if(rows, [](const auto& row) { return row.second == 0; });
    return rows;
  }

  TraceBuilder trace_;
  trace::DeviceId gpu_;
  trace::DeviceId host_;
  trace::ProcessId process_;
  tables::StackId torch_;
};

TEST_F(AbsencesTest, AllRowsLeaveAndComeBack) {
  Begin();
  Checkpoint(CheckpointKind::kLock);
  Checkpoint(CheckpointKind::kCheckpoint);
  trace_.Sample(100 * kMiB);
  trace_.ProcessSample(0);
  trace_.Mark("within");
  Checkpoint(CheckpointKind::kRestore);
  Checkpoint(CheckpointKind::kUnlock);
  trace_.Sample(680 * kMiB);
  trace_.ProcessSample(570 * kMiB);
  trace_.Mark("after");
  trace_.Free(kBase);
  trace_.Sample(680 * kMiB);
  EXPECT_EQ(Rows("mark:before"), Present());
  EXPECT_EQ(Rows("mark:within"), Away());
  EXPECT_EQ(Rows("mark:after"), Present());
  EXPECT_EQ(Rows("peak"), Present());
  EXPECT_THAT(Rows("end"), Contains(Pair("PyTorch / fragmentation", 60 * kMiB)));
  const Report within = ReportAt("mark:within");
  EXPECT_EQ(within.devices[0].ledger_bytes, 100 * kMiB);
  EXPECT_EQ(within.processes[0].nvml_bytes, 0);
  EXPECT_EQ(within.processes[0].residual_bytes, 0);
}

TEST_F(AbsencesTest, TimesAreKnown) {
  const trace::DeviceId second = trace_.AddGpu(1);
  Begin();
  trace_.On(second);
  trace_.DriverAlloc(kBase + (3ull << 30), 40 * kMiB);
  const int64_t left_ns = trace_.events().back().time_ns + kMs;
  Checkpoint(CheckpointKind::kCheckpoint);
  Checkpoint(CheckpointKind::kRestore);
  Checkpoint(CheckpointKind::kCheckpoint);
  const auto recording = Analyse(trace_);
  const auto& times = recording->tables().checkpointed;
  ASSERT_EQ(times.size(), 4u);  // of the process on each of two devices
  for (const size_t first : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(times[first].begin_ns, left_ns);
    EXPECT_EQ(times[first].end_ns, left_ns + kMs);
    EXPECT_EQ(times[first + 1].begin_ns, left_ns + 2 * kMs);
    EXPECT_EQ(times[first + 1].end_ns, INT64_MAX);
  }
}

TEST_F(AbsencesTest, LivesAreTheSameAfterIt) {
  Begin();
  Checkpoint(CheckpointKind::kCheckpoint);
  Checkpoint(CheckpointKind::kRestore);
  trace_.Free(kBase);
  std::vector<std::tuple<uint64_t, uint64_t, bool>> found;
  for (const tables::AllocationRow& row : Allocations(*Analyse(trace_)))
    found.emplace_back(row.address, row.bytes / kMiB, row.end_ns == INT64_MAX);
  // PyTorch's segment is an allocation until its first block.
  EXPECT_THAT(found,
              UnorderedElementsAre(std::tuple(kBase, 80, false), std::tuple(kBase, 40, false),
                                   std::tuple(kBase + 40 * kMiB, 20, true),
                                   std::tuple(kBase + (1 << 30), 4, true)));
}

TEST_F(AbsencesTest, SamplesWithinTheCallsAreInTransit) {
  Begin();
  trace_.Sample(500 * kMiB);
  trace_.Sample(100 * kMiB);
  Checkpoint(CheckpointKind::kCheckpoint, 3 * kMs);
  trace_.Sample(100 * kMiB);
  trace_.Sample(300 * kMiB);
  Checkpoint(CheckpointKind::kRestore, 2 * kMs);
  trace_.Sample(680 * kMiB);
  EXPECT_EQ(Rows("end"), Present());
}

// What PyTorch cuts out of its segments needs no call; a thread that frees waits for the memory.
TEST_F(AbsencesTest, WhatChangesMeanwhileShowsWhenItIsBack) {
  Begin();
  trace_.DriverAlloc(kBase + (2ull << 30), 30 * kMiB);
  trace_.Sample(710 * kMiB);
  Checkpoint(CheckpointKind::kCheckpoint);
  trace_.Sample(100 * kMiB);
  trace_.Free(kBase);
  trace_.Alloc(kBase + 60 * kMiB, 8 * kMiB);
  trace_.DriverFree(kBase + (2ull << 30)).end_ns += 5 * kMs;
  trace_.Sample(100 * kMiB);
  trace_.Mark("within");
  Checkpoint(CheckpointKind::kRestore);
  trace_.Sample(710 * kMiB);
  trace_.At(100 * kMs);
  trace_.Sample(680 * kMiB);
  EXPECT_EQ(Rows("mark:within"), Away());
  auto expected = Present();
  expected["PyTorch / allocated"] = 28 * kMiB;
  expected["PyTorch / fragmentation"] = 52 * kMiB;
  EXPECT_EQ(Rows("end"), expected);
}

TEST_F(AbsencesTest, AProcessThatEndsWhileAwayTakesNothingWithIt) {
  Begin();
  Checkpoint(CheckpointKind::kCheckpoint);
  trace_.Sample(100 * kMiB);
  trace_.Mark("within");
  trace_.ProcessEnd();
  trace_.Sample(100 * kMiB);
  trace_.Sample(130 * kMiB);
  trace_.Mark("over");
  EXPECT_EQ(Rows("end"), Away());
  EXPECT_EQ(Rows("mark:within"), Away());
  EXPECT_THAT(Rows("mark:over"), UnorderedElementsAre(Pair("other processes", 130 * kMiB)));
}

TEST_F(AbsencesTest, ThePeakIsOfThoseThatAreThere) {
  const trace::ProcessId second = trace_.AddProcess(200);
  Begin();
  Checkpoint(CheckpointKind::kCheckpoint);
  trace_.Sample(100 * kMiB);
  trace_.In(second);
  trace_.DriverAlloc(kBase, 900 * kMiB);
  trace_.Sample(1000 * kMiB);
  trace_.DriverFree(kBase);
  trace_.Sample(100 * kMiB);
  trace_.In(process_);
  Checkpoint(CheckpointKind::kRestore);
  trace_.Sample(680 * kMiB);
  auto expected = Away();
  expected["PyTorch / no blocks seen"] = 900 * kMiB;
  EXPECT_EQ(Rows("peak"), expected);
  EXPECT_EQ(ReportAt("peak").residuals[0].estimated_bytes, 100 * kMiB);
  EXPECT_EQ(Rows("end"), Present());
}

TEST_F(AbsencesTest, TheTimelineSinks) {
  Begin();
  Checkpoint(CheckpointKind::kCheckpoint);
  trace_.At(500 * kMs);
  Checkpoint(CheckpointKind::kRestore);
  trace_.At(1000 * kMs);
  trace_.Mark("end");
  const auto timelines = *MakeTimelines(*Analyse(trace_), 100);
  const Timeline& timeline = timelines.front();
  std::vector<uint64_t> totals(timeline.time_ns.size());
  for (const auto& band : timeline.peak) {
    for (size_t i = 0; i < band.size(); ++i)
      totals[i] += band[i] / kMiB;
  }
  const auto at = [&](int64_t ms) {
    const auto after = std::upper_bound(timeline.time_ns.begin(), timeline.time_ns.end(),
                                        TraceBuilder::kStartNs + ms * kMs);
    return totals[static_cast<size_t>(after - timeline.time_ns.begin()) - 1];
  };
  EXPECT_EQ(at(250), 100u);
  EXPECT_EQ(at(750), 680u);
}

// An unrecorded tool: NVML's figures show it.
TEST_F(AbsencesTest, FiguresTellOfACheckpointFromOutside) {
  Begin();
  trace_.Sample(680 * kMiB);
  trace_.Sample(400 * kMiB);
  trace_.Sample(100 * kMiB);
  trace_.ProcessSample(0);
  trace_.Sample(100 * kMiB);
  trace_.Mark("within");
  trace_.Sample(350 * kMiB);
  trace_.ProcessSample(240 * kMiB);
  trace_.Sample(680 * kMiB);
  trace_.Mark("after");
  trace_.ProcessSample(570 * kMiB);
  trace_.Sample(680 * kMiB);
  EXPECT_EQ(Rows("mark:before"), Present());
  EXPECT_EQ(Rows("mark:within"), Away());
  EXPECT_EQ(Rows("mark:after"), Present());
}

TEST_F(AbsencesTest, TheDevicesFigureMaySinkAfterTheProcesss) {
  Begin();
  trace_.Sample(680 * kMiB);
  trace_.ProcessSample(0);
  trace_.Sample(100 * kMiB);
  trace_.Mark("within");
  trace_.Sample(100 * kMiB);
  EXPECT_EQ(Rows("mark:within"), Away());
}

TEST_F(AbsencesTest, ACallThatEndsShowsThatItIsBack) {
  Begin();
  trace_.Sample(100 * kMiB);
  trace_.ProcessSample(0);
  trace_.Sample(100 * kMiB);
  trace_.Free(kBase);
  trace_.Sample(100 * kMiB);
  trace_.DriverAlloc(kBase + (2ull << 30), 30 * kMiB).begin_ns -= kMs;
  trace_.Sample(710 * kMiB);
  trace_.Mark("after");
  EXPECT_EQ(ReportAt("mark:after").devices[0].ledger_bytes, 710 * kMiB);
}

// While others use the device, only the process's own figure shows that it is back; if that is less
// than before, once it stays.
TEST_F(AbsencesTest, AFigureThatStaysIsBack) {
  Begin();
  trace_.Sample(100 * kMiB);
  trace_.ProcessSample(0);
  trace_.Sample(100 * kMiB);
  trace_.ProcessSample(300 * kMiB);
  trace_.Mark("half");
  trace_.ProcessSample(540 * kMiB);
  trace_.ProcessSample(540 * kMiB);
  trace_.Mark("all");
  const auto ledger = [&](const char* when) {
    return ReportOf(trace_, At(when)).processes[0].ledger_bytes;
  };
  EXPECT_EQ(ledger("mark:half"), 0u);
  EXPECT_EQ(ledger("mark:all"), 570 * kMiB);
}

TEST_F(AbsencesTest, AFigureAloneIsNoAbsence) {
  Begin();
  trace_.ProcessSample(0);
  trace_.Sample(680 * kMiB);
  trace_.Sample(680 * kMiB);
  EXPECT_EQ(Rows("end"), Present());
}

TEST_F(AbsencesTest, TheEndOfAProcessIsNoAbsence) {
  Begin();
  trace_.Teardown();
  trace_.Sample(100 * kMiB);
  trace_.ProcessSample(0);
  trace_.ProcessEnd();
  EXPECT_THAT(RowBytes(ReportOf(trace_, At("end"))),
              Contains(Key("driver-owned / context / cuCtxCreate_v4")));
}

// The record of the call comes after the figures have shown it.
TEST_F(AbsencesTest, FiguresWithinARecordedCall) {
  Begin();
  trace_.Sample(640 * kMiB);
  trace_.Sample(100 * kMiB);
  trace_.ProcessSample(0);
  trace_.Sample(100 * kMiB);
  Checkpoint(CheckpointKind::kCheckpoint, 4 * kMs);
  trace_.Sample(100 * kMiB);
  trace_.Mark("within");
  trace_.Sample(650 * kMiB);
  trace_.Sample(680 * kMiB);
  Checkpoint(CheckpointKind::kRestore, 3 * kMs);
  trace_.Sample(680 * kMiB);
  EXPECT_EQ(Rows("mark:within"), Away());
  EXPECT_EQ(Rows("end"), Present());
}

}  // namespace
}  // namespace vramscope::query
