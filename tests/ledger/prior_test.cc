// SPDX-License-Identifier: Apache-2.0
// Recordings that begin in a process under way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/training.h"

namespace vramscope::query {
namespace {

using format::NameKind;
using format::PriorKind;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class PriorTest : public ::testing::Test {
 protected:
  PriorTest() {
    gpu_ = trace_.AddGpu();
    trace_.AddProcess(100);
    trace_.StepIs(50'000);
  }
  trace::Event& Prior(PriorKind kind, uint64_t address = 0, uint64_t size = 0) {
    trace::Event& event = trace_.Add(trace::Prior{
        .kind = kind, .address = address, .size = size, .name = trace_.Text("PyTorch")});
    if (kind == PriorKind::kProcess)
      event.As<trace::Prior>().device = trace::kNoDevice;
    return event;
  }
  Report At(const std::string& when = "end", const std::string& by = "") {
    ReportQuery query = query::At(when);
    if (!by.empty())
      query.by = {*ParseDimension(by)};
    Report report = ReportOf(trace_, query);
    EXPECT_EQ(BrokenInvariants(report, kBesideNvml), "");
    return report;
  }
  static std::vector<std::string> Losses(const Report& report) {
    std::vector<std::string> names;
    for (const auto& loss : report.losses)
      names.push_back(loss.name);
    return names;
  }

  TraceBuilder trace_;
  trace::DeviceId gpu_;
};

TEST_F(PriorTest, WhatStoodBeforeIsRows) {
  // 900 MiB of others; 700 MiB of the process: a context and 40 MiB of segments.
  trace_.Sample(1600 * kMiB);
  trace_.ProcessSample(700 * kMiB);
  Prior(PriorKind::kProcess);
  Prior(PriorKind::kSegment, kBase, 20 * kMiB);
  Prior(PriorKind::kBlock, kBase, 12 * kMiB);
  Prior(PriorKind::kBlock, kBase + 12 * kMiB, 4 * kMiB);
  Prior(PriorKind::kSegment, kBase + 64 * kMiB, 20 * kMiB);
  trace_.Name(NameKind::kParameter, kBase, "fc.weight", 12 * kMiB - 100);
  trace_.Sample(1600 * kMiB);
  const Report report = At();
  EXPECT_THAT(RowBytes(report),
              UnorderedElementsAre(
                  Pair("PyTorch / parameter", 12 * kMiB - 100), Pair("PyTorch / rounding", 100),
                  Pair("PyTorch / before recording", 4 * kMiB),
                  Pair("PyTorch / fragmentation", 4 * kMiB), Pair("PyTorch / cached", 20 * kMiB),
                  Pair("before recording", 660 * kMiB), Pair("other processes", 900 * kMiB)));
  EXPECT_EQ(report.devices[0].ledger_bytes, 1600 * kMiB);
  EXPECT_EQ(report.devices[0].residual_bytes, 0);
  EXPECT_THAT(Losses(report), IsEmpty());
  EXPECT_EQ(RowBytes(At("end", "category"))["parameter"], 12 * kMiB - 100);
}

// An engine that was recorded late, and sleeps then.
TEST_F(PriorTest, WhatWasMappedBeforeCanSleep) {
  trace_.Sample(700 * kMiB);
  trace_.ProcessSample(700 * kMiB);
  Prior(PriorKind::kProcess);
  Prior(PriorKind::kSegment, kBase, 20 * kMiB);
  Prior(PriorKind::kBlock, kBase, 12 * kMiB);
  trace_.Add(trace::Unmap{.address = kBase, .size = 20 * kMiB});
  trace_.Mark("asleep");
  trace_.Add(trace::HandleCreate{.handle = 7, .size = 20 * kMiB});
  trace_.Add(trace::Map{.address = kBase, .size = 20 * kMiB, .handle = 7});
  const Report asleep = At("mark:asleep");
  EXPECT_EQ(asleep.devices[0].ledger_bytes, 680 * kMiB);
  EXPECT_EQ(asleep.devices[0].unbacked_bytes, 12 * kMiB);
  const Report report = At();
  EXPECT_EQ(report.devices[0].ledger_bytes, 700 * kMiB);
  EXPECT_EQ(report.devices[0].unbacked_bytes, 0u);
}

TEST_F(PriorTest, TheFigureMayComeLater) {
  Prior(PriorKind::kProcess);
  Prior(PriorKind::kSegment, kBase, 20 * kMiB);
  trace_.Sample(1600 * kMiB);
  trace_.ProcessSample(700 * kMiB);
  trace_.Sample(1600 * kMiB);
  const Report report = At();
  EXPECT_THAT(RowBytes(report), UnorderedElementsAre(Pair("PyTorch / cached", 20 * kMiB),
                                                     Pair("before recording", 680 * kMiB),
                                                     Pair("other processes", 900 * kMiB)));
}

TEST_F(PriorTest, FreesAndSegmentsGoOnAsIfSeenFromTheStart) {
  trace_.Sample(700 * kMiB);
  trace_.ProcessSample(700 * kMiB);
  Prior(PriorKind::kProcess);
  Prior(PriorKind::kSegment, kBase, 20 * kMiB);
  Prior(PriorKind::kBlock, kBase, 12 * kMiB);
  trace_.Free(kBase, 12 * kMiB);
  trace_.Alloc(kBase, 2 * kMiB);
  trace_.StackIs({}, trace_.Native({"/v/torch/lib/libc10_cuda.so"}));
  trace_.DriverAlloc(kBase + 64 * kMiB, 30 * kMiB);
  trace_.Alloc(kBase + 64 * kMiB, 30 * kMiB);
  trace_.Sample(730 * kMiB);
  EXPECT_THAT(RowBytes(At()), UnorderedElementsAre(Pair("PyTorch / allocated", 32 * kMiB),
                                                   Pair("PyTorch / fragmentation", 18 * kMiB),
                                                   Pair("before recording", 680 * kMiB)));
  trace_.Free(kBase, 2 * kMiB);
  trace_.DriverFree(kBase);
  trace_.Sample(710 * kMiB);
  const Report report = At();
  EXPECT_THAT(RowBytes(report), UnorderedElementsAre(Pair("PyTorch / allocated", 30 * kMiB),
                                                     Pair("before recording", 680 * kMiB)));
  EXPECT_EQ(report.devices[0].residual_bytes, 0);
  EXPECT_THAT(Losses(report), IsEmpty());
}

// Memory that NVML counts and PyTorch does not list is not reserved by its allocator.
TEST_F(PriorTest, IterationsKnowWhatStoodBefore) {
  trace_.Sample(700 * kMiB);
  trace_.ProcessSample(700 * kMiB);
  Prior(PriorKind::kProcess);
  Prior(PriorKind::kSegment, kBase, 20 * kMiB);
  Prior(PriorKind::kBlock, kBase, 12 * kMiB);
  Prior(PriorKind::kBlock, kBase + 12 * kMiB, 4 * kMiB);
  trace_.Name(NameKind::kParameter, kBase, "fc.weight", 12 * kMiB);
  trace_.Alloc(kBase + 16 * kMiB, 3 * kMiB);
  trace_.Mark("iteration");
  trace_.Free(kBase + 12 * kMiB);
  trace_.Free(kBase + 16 * kMiB);
  trace_.Mark("iteration");
  trace_.Alloc(kBase + 12 * kMiB, 2 * kMiB);
  trace_.Mark("iteration");
  const auto found = MakeIterations(*Analyse(trace_));
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_EQ(found->iterations.size(), 3u);
  const Iteration& first = found->iterations.front();
  EXPECT_EQ(first.peak_bytes, 700 * kMiB);
  EXPECT_EQ(first.peak_allocated, 19 * kMiB);
  EXPECT_EQ(first.peak_reserved, 20 * kMiB);
  EXPECT_EQ(first.before_recording_peak, 700 * kMiB);  // until the snapshot tells segments
  const Iteration& last = found->iterations.back();
  EXPECT_EQ(last.peak_allocated, 14 * kMiB);
  EXPECT_EQ(last.end_reserved, 20 * kMiB);
  EXPECT_EQ(last.before_recording_peak, 680 * kMiB);
}

// Other threads run while the snapshot is taken: their memory in it is known already, or is
// recorded after it.
TEST_F(PriorTest, WhatTheSnapshotAndTheRecordingBothShowCountsOnce) {
  trace_.Alloc(kBase + 2 * kMiB, 2 * kMiB);
  Prior(PriorKind::kProcess);
  Prior(PriorKind::kSegment, kBase, 20 * kMiB);
  Prior(PriorKind::kSegment, kBase, 20 * kMiB);
  Prior(PriorKind::kBlock, kBase + 2 * kMiB, 2 * kMiB);
  Prior(PriorKind::kBlock, kBase + 4 * kMiB, 2 * kMiB);
  trace_.Alloc(kBase + 4 * kMiB, 2 * kMiB);
  const Report report = At();
  EXPECT_THAT(RowBytes(report), UnorderedElementsAre(Pair("PyTorch / allocated", 4 * kMiB),
                                                     Pair("PyTorch / fragmentation", 16 * kMiB)));
  EXPECT_THAT(Losses(report), IsEmpty());
}

// Where the driver's calls go unseen, the allocator's own totals say what it took.
TEST_F(PriorTest, TotalsStandInForSegmentsThatWereNotSeen) {
  Prior(PriorKind::kProcess);
  Prior(PriorKind::kSegment, kBase, 20 * kMiB);
  trace_.Alloc(kBase + 256 * kMiB, 6 * kMiB);
  trace_.Add(trace::AllocatorTotals{.allocated = 6 * kMiB, .reserved = 30 * kMiB});
  EXPECT_THAT(RowBytes(At()), UnorderedElementsAre(Pair("PyTorch / allocated", 6 * kMiB),
                                                   Pair("PyTorch / cached", 24 * kMiB)));
}

TEST_F(PriorTest, OnACpuWhatHasANameIsKnown) {
  TraceBuilder trace;
  const trace::DeviceId cpu = trace.AddCpu();
  trace.AddProcess(100);
  trace.On(cpu);
  const auto prior = [&](PriorKind kind, uint64_t address, uint64_t size) {
    trace.Add(trace::Prior{.kind = kind, .address = address, .size = size});
  };
  prior(PriorKind::kProcess, 0, 0);
  prior(PriorKind::kBlock, 0x1000, 400);
  trace.Name(NameKind::kParameter, 0x1000, "fc.weight", 400);
  trace.Alloc(0x2000, 100);
  ReportQuery query = query::At("end");
  query.by = {*ParseDimension("category")};
  EXPECT_THAT(RowBytes(ReportOf(trace, query)),
              UnorderedElementsAre(Pair("parameter", 400), Pair("unknown", 100)));
  trace.Free(0x1000);
  const Report report = ReportOf(trace, query);
  EXPECT_THAT(RowBytes(report), UnorderedElementsAre(Pair("unknown", 100)));
  EXPECT_THAT(Losses(report), IsEmpty());
}

}  // namespace
}  // namespace vramscope::query
