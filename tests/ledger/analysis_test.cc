// SPDX-License-Identifier: Apache-2.0
// The whole engine on CPU tensors: live set, instants, dimensions, lines, losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/report_text.h"

namespace vramscope::query {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class CpuAnalysisTest : public ::testing::Test {
 protected:
  CpuAnalysisTest() {
    cpu_ = trace_.AddCpu();
    trace_.AddProcess(4711);
    trace_.On(cpu_);
  }
  TraceBuilder trace_;
  trace::DeviceId cpu_;
};

TEST_F(CpuAnalysisTest, PeakIsTheHighestInstant) {
  trace_.Alloc(0x1000, 100);
  trace_.Alloc(0x2000, 50);
  trace_.Free(0x1000);
  trace_.Alloc(0x3000, 70);  // 120 < 150
  const Report report = ReportOf(trace_);
  ASSERT_EQ(report.devices.size(), 1u);
  EXPECT_EQ(report.devices[0].ledger_bytes, 150u);
  EXPECT_EQ(report.devices[0].index, -1);
  EXPECT_EQ(report.devices[0].at_kind, "peak");
  EXPECT_EQ(report.devices[0].at_ns, TraceBuilder::kStartNs + 1000);
  EXPECT_FALSE(report.devices[0].nvml_bytes.has_value());
  EXPECT_THAT(RowBytes(report), ElementsAre(Pair("PyTorch / allocated", 150)));
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_EQ(report.rows[0].count, 2u);
  EXPECT_EQ(report.rows[0].pid, 4711u);
  EXPECT_EQ(BrokenInvariants(report), "");
}

TEST_F(CpuAnalysisTest, PeakIsFoundAfterLaterFreesAndReuse) {
  for (uint64_t round = 0; round < 5; ++round) {
    trace_.Alloc(0x1000, 100 * (round + 1));
    trace_.Alloc(0x2000, 1);
    trace_.Free(0x1000);
    trace_.Free(0x2000);
  }
  trace_.Alloc(0x1000, 3);
  EXPECT_EQ(ReportOf(trace_).devices[0].ledger_bytes, 501u);
}

TEST_F(CpuAnalysisTest, EndIsBeforeTeardown) {
  trace_.Alloc(0x1000, 100);
  trace_.Alloc(0x2000, 10);
  trace_.Free(0x1000);
  trace_.Teardown();
  trace_.Free(0x2000);
  trace_.Alloc(0x3000, 1000);
  trace_.ProcessEnd();
  const Report report = ReportOf(trace_, At("end"));
  EXPECT_EQ(report.devices[0].ledger_bytes, 10u);
  EXPECT_EQ(report.devices[0].at_ns, TraceBuilder::kStartNs + 3000);
}

TEST_F(CpuAnalysisTest, EndWithoutTeardownIsTheLastEvent) {
  trace_.Alloc(0x1000, 100);
  trace_.Alloc(0x2000, 10);
  trace_.Free(0x1000);
  EXPECT_EQ(ReportOf(trace_, At("end")).devices[0].ledger_bytes, 10u);
  trace_.ProcessEnd();
  EXPECT_EQ(ReportOf(trace_, At("end")).devices[0].ledger_bytes, 10u);
}

TEST_F(CpuAnalysisTest, AnyInstantBySecondsTimeAndMark) {
  trace_.Alloc(0x1000, 100);
  trace_.Mark("loaded");
  trace_.At(500'000'000);
  trace_.Alloc(0x2000, 10);
  trace_.Free(0x1000);
  trace_.At(2'000'000'000);
  trace_.Alloc(0x3000, 1);
  auto analysis = Analyse(trace_);
  const auto bytes = [&](const std::string& when) {
    const auto report = MakeReport(*analysis, At(when));
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? report->devices[0].ledger_bytes : 0;
  };
  EXPECT_EQ(bytes("0.1"), 100u);
  EXPECT_EQ(bytes("0.5"), 110u);
  EXPECT_EQ(bytes("1"), 10u);
  EXPECT_EQ(bytes("2"), 11u);
  EXPECT_EQ(bytes("mark:loaded"), 100u);
  EXPECT_EQ(bytes("@" + std::to_string(TraceBuilder::kStartNs + 600'000'000)), 10u);
  EXPECT_EQ(MakeReport(*analysis, At("mark:loaded"))->devices[0].at_kind, "mark");

  const auto late = MakeReport(*analysis, At("3"));
  ASSERT_FALSE(late.ok());
  EXPECT_THAT(late.status().message(), HasSubstr("lasts 2.000 s"));
  const auto mark = MakeReport(*analysis, At("mark:nowhere"));
  ASSERT_FALSE(mark.ok());
  EXPECT_THAT(mark.status().message(), HasSubstr("'loaded'"));
  const auto iteration = MakeReport(*analysis, At("iter:1"));
  ASSERT_FALSE(iteration.ok());
  EXPECT_THAT(iteration.status().message(), HasSubstr("no iterations"));
  EXPECT_EQ(analysis->tables().marks.size(), 1u);
}

TEST_F(CpuAnalysisTest, GroupsByLineThreadSizeAndLifetime) {
  const tables::ThreadId thread = trace_.AddThread(99, "loader");
  const auto user =
      trace_.Python({{"/home/me/train.py", 42, "main"},
                     {"/usr/lib/python3.11/site-packages/torch/nn/x.py", 7, "forward"}});
  const auto library = trace_.Python({{"/usr/lib/python3.11/threading.py", 1, "run"}});
  trace_.SetSource("/home/me/train.py", 42, "y = model(x)");
  trace_.StackIs(user);
  trace_.Alloc(0x1000, 2000);
  trace_.StackIs(library);
  trace_.Alloc(0x2000, 500).thread = thread;
  trace_.At(20'000'000);
  trace_.Free(0x1000);
  auto analysis = Analyse(trace_);
  const auto rows = [&](const std::string& by) {
    ReportQuery query;
    query.by = {*ParseDimension(by)};
    return RowBytes(*MakeReport(*analysis, query));
  };
  EXPECT_THAT(rows("line"), UnorderedElementsAre(Pair("train.py:42 in main", 2000),
                                                 Pair("threading.py:1 in run", 500)));
  EXPECT_THAT(rows("python"),
              UnorderedElementsAre(Pair("train.py:42 in main;x.py:7 in forward", 2000),
                                   Pair("threading.py:1 in run", 500)));
  EXPECT_THAT(rows("thread"), UnorderedElementsAre(Pair("(none)", 2000), Pair("loader (99)", 500)));
  EXPECT_THAT(rows("size_class"),
              UnorderedElementsAre(Pair("1 KiB to 16 KiB", 2000), Pair("below 1 KiB", 500)));
  EXPECT_THAT(rows("lifetime"),
              UnorderedElementsAre(Pair("10 ms to 100 ms", 2000), Pair("never freed", 500)));
  EXPECT_THAT(rows("owner"), ElementsAre(Pair("PyTorch", 2500)));
  EXPECT_THAT(rows("device"), ElementsAre(Pair("cpu", 2500)));
  EXPECT_THAT(rows("process"), ElementsAre(Pair("4711", 2500)));
  EXPECT_THAT(rows("category"), ElementsAre(Pair("unknown", 2500)));
  EXPECT_THAT(rows("api"), ElementsAre(Pair("caching allocator", 2500)));

  const Report report = *MakeReport(*analysis, {});
  ASSERT_EQ(report.top_lines.size(), 2u);
  EXPECT_EQ(report.top_lines[0].place, "train.py:42 in main");
  EXPECT_EQ(report.top_lines[0].source, "y = model(x)");
  EXPECT_EQ(report.top_lines[0].bytes, 2000u);
  ASSERT_EQ(report.top_stacks.size(), 2u);
  EXPECT_EQ(report.top_stacks[0].stack.value, user.value);
  ASSERT_EQ(report.top_churn.size(), 2u);
  EXPECT_EQ(report.top_churn[0].bytes, 2000u);

  ReportQuery where;
  where.where = {{Dimension::kLine, "train.py"}};
  EXPECT_EQ(MakeReport(*analysis, where)->devices[0].ledger_bytes, 2000u);
  where.where = {{Dimension::kLine, "train.py"}, {Dimension::kThread, "loader"}};
  EXPECT_EQ(MakeReport(*analysis, where)->devices[0].ledger_bytes, 0u);
  where.where = {{Dimension::kOwner, "Torch"}};  // names match exactly
  EXPECT_EQ(MakeReport(*analysis, where)->devices[0].ledger_bytes, 0u);
}

// Each device's own largest first, a list that is cut would leave out the largest of all.
TEST_F(CpuAnalysisTest, ListsOfPlacesAreInOrderAcrossDevices) {
  const trace::DeviceId gpu = trace_.AddGpu(3);
  for (uint32_t line = 1; line <= 3; ++line) {
    trace_.StackIs(trace_.Python({{"/a.py", line, "f"}}));
    trace_.On(line == 2 ? gpu : cpu_);
    trace_.Alloc(0x1000 * line, 100 * line);
  }
  auto analysis = Analyse(trace_);
  const Report report = *MakeReport(*analysis, {});
  const auto expect_sorted = [&](const auto& list) {
    ASSERT_EQ(list.size(), 3u);
    EXPECT_EQ(list[0].bytes, 300u);
    EXPECT_EQ(list[1].bytes, 200u);
    EXPECT_EQ(list[1].device.value, static_cast<uint32_t>(gpu.value) + 1);
    EXPECT_EQ(list[2].bytes, 100u);
  };
  expect_sorted(report.top_stacks);
  expect_sorted(report.top_lines);
  expect_sorted(report.top_churn);
  for (const char* const name : {"3", "gpu3"}) {
    ReportQuery where;
    where.where = {{Dimension::kDevice, name}};
    EXPECT_THAT(RowBytes(*MakeReport(*analysis, where)),
                ElementsAre(Pair("PyTorch / allocated", 200)))
        << name;
  }
}

TEST_F(CpuAnalysisTest, WithoutNamesThereAreNone) {
  trace_.Alloc(0x1000, 1);
  auto analysis = Analyse(trace_);
  for (const Dimension dimension :
       {Dimension::kModule, Dimension::kParameter, Dimension::kIteration, Dimension::kTag}) {
    ReportQuery query;
    query.by = {dimension};
    EXPECT_THAT(RowBytes(*MakeReport(*analysis, query)), ElementsAre(Pair("(none)", 1)));
    query.by.clear();
    query.where = {{dimension, "x"}};
    EXPECT_EQ(MakeReport(*analysis, query)->devices[0].ledger_bytes, 0u);
  }
}

TEST_F(CpuAnalysisTest, TopLeavesTheRestInOneRow) {
  for (uint64_t i = 1; i <= 4; ++i) {
    trace_.StackIs(trace_.Python({{"/a.py", static_cast<uint32_t>(i), "f"}}));
    trace_.Alloc(0x1000 * i, 10 * i);
  }
  ReportQuery query;
  query.by = {Dimension::kLine};
  query.top = 2;
  Report report = ReportOf(trace_, query);
  ASSERT_EQ(report.rows.size(), 4u);
  CutRows(query.top, &report.rows);
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_EQ(report.rows[0].bytes, 40u);
  EXPECT_EQ(report.rows[2].path, std::vector<std::string>{"(rest)"});
  EXPECT_EQ(report.rows[2].bytes, 30u);
  EXPECT_EQ(report.rows[2].count, 2u);
}

TEST_F(CpuAnalysisTest, UnknownFreesMeanMoreWasLiveBefore) {
  trace_.Alloc(0x1000, 100);
  trace_.Free(0x8000, 30);
  trace_.Free(0x9000, 5);
  trace_.Alloc(0x2000, 1);
  const Report peak = ReportOf(trace_);
  EXPECT_THAT(RowBytes(peak),
              UnorderedElementsAre(Pair("PyTorch / allocated", 100), Pair("before recording", 35)));
  EXPECT_EQ(peak.devices[0].ledger_bytes, 135u);
  EXPECT_EQ(BrokenInvariants(peak), "");
  ASSERT_EQ(peak.losses.size(), 1u);
  EXPECT_EQ(peak.losses[0].name, "frees of unknown allocations");
  EXPECT_EQ(peak.losses[0].count, 2u);
  EXPECT_EQ(peak.losses[0].bytes, 35u);
  EXPECT_THAT(RowBytes(ReportOf(trace_, At("end"))),
              UnorderedElementsAre(Pair("PyTorch / allocated", 101)));
}

TEST_F(CpuAnalysisTest, WhatThreadsSayOfBeforeShrinksWithUnknownFrees) {
  trace_.Add(trace::State{.cpu_live = 1000});
  trace_.Add(trace::State{.cpu_live = -200});
  trace_.Alloc(0x1000, 100);
  trace_.Free(0x8000, 300);
  EXPECT_THAT(
      RowBytes(ReportOf(trace_, At("end"))),
      UnorderedElementsAre(Pair("PyTorch / allocated", 100), Pair("before recording", 500)));
}

TEST_F(CpuAnalysisTest, DoubleAllocationEndsTheFirst) {
  trace_.Alloc(0x1000, 100);
  trace_.Alloc(0x1000, 10);
  const Report report = ReportOf(trace_, At("end"));
  EXPECT_EQ(report.devices[0].ledger_bytes, 10u);
  ASSERT_EQ(report.losses.size(), 1u);
  EXPECT_EQ(report.losses[0].name, "allocations at a live address");
}

TEST_F(CpuAnalysisTest, SecondFreeBreaksAnInvariant) {
  trace_.Alloc(0x1000, 100);
  trace_.Free(0x1000);
  trace_.Free(0x1000, 100);
  const Report report = ReportOf(trace_);
  EXPECT_THAT(BrokenInvariants(report), HasSubstr("nothing is freed twice"));
  EXPECT_EQ(report.devices[0].ledger_bytes, 100u);
}

TEST_F(CpuAnalysisTest, ProcessesAreApart) {
  const trace::ProcessId other = trace_.AddProcess(5000);
  trace_.Alloc(0x1000, 100);
  trace_.In(other);
  trace_.Alloc(0x1000, 7);
  trace_.ProcessEnd();
  trace_.In(trace::ProcessId{0});
  trace_.Alloc(0x2000, 50);
  const Report peak = ReportOf(trace_);
  EXPECT_EQ(peak.devices[0].ledger_bytes, 150u);
  ASSERT_EQ(peak.processes.size(), 2u);
  EXPECT_EQ(peak.processes[0].ledger_bytes, 150u);
  EXPECT_EQ(peak.processes[1].ledger_bytes, 0u);
  // Each process at its own end.
  const Report end = ReportOf(trace_, At("end"));
  EXPECT_EQ(end.processes[0].ledger_bytes, 150u);
  EXPECT_EQ(end.processes[1].ledger_bytes, 7u);
  EXPECT_EQ(end.devices[0].ledger_bytes, 157u);
}

TEST_F(CpuAnalysisTest, EachAllocationIsARow) {
  trace_.Alloc(0x1000, 100);
  trace_.Alloc(0x2000, 1);
  trace_.Alloc(0x3000, 2);
  trace_.Free(0x2000);
  trace_.Alloc(0x4000, 1);
  trace_.Free(0x1000);
  trace_.Add(trace::Mark{});
  std::vector<std::pair<uint64_t, int64_t>> listed;
  for (const tables::AllocationRow& row : Allocations(*Analyse(trace_)))
    listed.emplace_back(row.address, row.end_ns);
  EXPECT_THAT(listed, ElementsAre(Pair(0x1000, TraceBuilder::kStartNs + 5000),
                                  Pair(0x2000, TraceBuilder::kStartNs + 3000),
                                  Pair(0x3000, INT64_MAX), Pair(0x4000, INT64_MAX)));
}

TEST_F(CpuAnalysisTest, TimelineShowsEachBucketsPeak) {
  trace_.Alloc(0x1000, 100);
  trace_.Alloc(0x2000, 900);
  trace_.Free(0x2000);
  trace_.At(10'000'000);
  trace_.Alloc(0x3000, 50);
  auto analysis = Analyse(trace_);
  const auto timelines = MakeTimelines(*analysis, 8);
  ASSERT_EQ(timelines->size(), 1u);
  const Timeline& timeline = (*timelines)[0];
  EXPECT_THAT(timeline.groups, ElementsAre("PyTorch / allocated"));
  ASSERT_LE(timeline.time_ns.size(), 8u);
  EXPECT_EQ(timeline.time_ns.front(), TraceBuilder::kStartNs);
  EXPECT_EQ(timeline.peak[0].front(), 1000u);
  EXPECT_EQ(timeline.peak[0].back(), 150u);
}

TEST_F(CpuAnalysisTest, NonsenseIsSurvived) {
  trace_.Alloc(0, 100);
  trace_.Alloc(0x1000, UINT64_MAX);
  trace_.Alloc(0x2000, 8).As<trace::BlockAlloc>().device = trace::DeviceId{77};
  trace_.Alloc(0x2000, 8).process = trace::ProcessId{77};
  trace_.Alloc(0x3000, 8).As<trace::BlockAlloc>().stack = tables::StackId{1234567};
  trace_.Alloc(0x4000, 8).time_ns = INT64_MAX;
  trace_.Free(0x3000, UINT64_MAX).time_ns = INT64_MIN;
  const Report report = ReportOf(trace_);
  EXPECT_EQ(report.devices[0].ledger_bytes, 8u);
}

}  // namespace
}  // namespace vramscope::query
