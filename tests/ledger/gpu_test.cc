// SPDX-License-Identifier: Apache-2.0
// The GPU's ledger: what the driver gave, what it took for itself, and NVML beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/report_text.h"

namespace vramscope::query {
namespace {

using format::ImplicitKind;
using format::MemoryKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class GpuTest : public ::testing::Test {
 protected:
  GpuTest() {
    gpu_ = trace_.AddGpu();
    trace_.AddProcess(100);
    trace_.On(gpu_);
    trace_.StepIs(50'000);  // further apart than clocks may differ
    application_ = trace_.Native({"/home/me/solver"});
    pytorch_ = trace_.Native({"/usr/bin/python3.11", "/venv/torch/lib/libtorch_python.so",
                              "/venv/torch/lib/libc10_cuda.so", "/usr/lib/libcuda.so.1",
                              "/opt/libvramscope_probe.so"});
  }
  // A sample, a context of 500 MiB with its reading, and a sample after it: total 510 MiB.
  void Context() {
    trace_.Sample(10 * kMiB);
    trace_.ContextCreate(0xc0);
    trace_.Reading(510 * kMiB);
    trace_.Sample(510 * kMiB);
  }
  std::map<std::string, uint64_t> Rows(const std::string& when = "end") {
    return RowBytes(ReportOf(trace_, At(when)));
  }

  TraceBuilder trace_;
  trace::DeviceId gpu_;
  tables::StackId application_;
  tables::StackId pytorch_;
};

TEST_F(GpuTest, AllocationsArePricedByGranularity) {
  trace_.StackIs({}, application_);
  trace_.DriverAlloc(kBase, 3 * kMiB);
  trace_.DriverAlloc(kBase + 64 * kMiB, 1000);
  trace_.DriverAlloc(kBase + 64 * kMiB + 4096, 2000);
  trace_.DriverAlloc(kBase + 64 * kMiB + 0x20400, 1605632);  // in the free end of the same slab
  trace_.DriverAlloc(kBase + 128 * kMiB, 2 * kMiB - 1);      // the largest that shares one
  EXPECT_THAT(Rows(),
              UnorderedElementsAre(Pair("application / allocated", 5 * kMiB + 3000 + 1605632 - 1),
                                   Pair("application / rounding", kMiB),
                                   Pair("rounding", 4 * kMiB - 3000 - 1605632 - 2 * kMiB + 1)));
  trace_.DriverFree(kBase + 64 * kMiB);
  trace_.DriverFree(kBase + 128 * kMiB);
  EXPECT_THAT(Rows(),
              UnorderedElementsAre(Pair("application / allocated", 3 * kMiB + 2000 + 1605632),
                                   Pair("application / rounding", kMiB),
                                   Pair("rounding", 2 * kMiB - 2000 - 1605632)));
}

TEST_F(GpuTest, OwnersComeFromTheFirstCallerOutsideTheDriver) {
  trace_.StackIs({}, pytorch_);
  trace_.DriverAlloc(kBase, 2 * kMiB);
  trace_.StackIs({}, trace_.Native({"/home/me/solver", "/usr/lib/libcublasLt.so.13",
                                    "/usr/lib/libcudart.so.13", "/usr/lib/libcuda.so.1"}));
  trace_.DriverAlloc(kBase + 64 * kMiB, 2 * kMiB);
  trace_.StackIs({}, {});
  trace_.DriverAlloc(kBase + 128 * kMiB, 2 * kMiB);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / no blocks seen", 2 * kMiB),
                                           Pair("cuBLAS / allocated", 2 * kMiB),
                                           Pair("unknown owner / allocated", 2 * kMiB)));
}

TEST_F(GpuTest, SegmentsAreCutIntoBlocks) {
  trace_.StackIs({}, pytorch_);
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Alloc(kBase, 5 * kMiB);
  trace_.DriverAlloc(kBase + 64 * kMiB, 2 * kMiB);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / allocated", 5 * kMiB),
                                           Pair("PyTorch / cached", 2 * kMiB),
                                           Pair("PyTorch / fragmentation", 15 * kMiB)));
  trace_.Free(kBase);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / cached", 22 * kMiB)));
  // Of all instants with 22 MiB, the peak is the one with the most in use.
  const Report peak = ReportOf(trace_);
  EXPECT_THAT(RowBytes(peak), UnorderedElementsAre(Pair("PyTorch / allocated", 5 * kMiB),
                                                   Pair("PyTorch / cached", 2 * kMiB),
                                                   Pair("PyTorch / fragmentation", 15 * kMiB)));
  trace_.DriverFree(kBase);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / cached", 2 * kMiB)));
  EXPECT_EQ(BrokenInvariants(ReportOf(trace_)), "");
}

// What empty_cache() would give back is one thing, what a graph's private pool keeps is another.
TEST_F(GpuTest, WhatIsFreeInAPrivatePoolIsNotCached) {
  trace_.StackIs({}, pytorch_);
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Alloc(kBase, 5 * kMiB);
  trace_.DriverAlloc(kBase + 64 * kMiB, 20 * kMiB);
  trace_.Alloc(kBase + 64 * kMiB, 7 * kMiB);
  trace_.Name(format::NameKind::kPrivatePool, kBase, "0.3");
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / allocated", 12 * kMiB),
                                           Pair("PyTorch / graph pool", 15 * kMiB),
                                           Pair("PyTorch / fragmentation", 13 * kMiB)));
  trace_.Free(kBase);
  trace_.Free(kBase + 64 * kMiB);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / graph pool", 20 * kMiB),
                                           Pair("PyTorch / cached", 20 * kMiB)));
  ReportQuery by_tag = At("end");
  by_tag.by = {Dimension::kTag};
  EXPECT_THAT(RowBytes(ReportOf(trace_, by_tag)),
              UnorderedElementsAre(Pair("0.3", 20 * kMiB), Pair("(none)", 20 * kMiB)));
  // Memory at the same address later is in no pool until an event assigns it.
  trace_.DriverFree(kBase);
  trace_.DriverAlloc(kBase, 4 * kMiB);
  EXPECT_EQ(Rows()["PyTorch / cached"], 24 * kMiB);
  // Of the program's own memory PyTorch says nothing.
  trace_.StackIs({}, trace_.Native({"/home/me/solver"}));
  trace_.DriverAlloc(kBase + 128 * kMiB, 2 * kMiB);
  trace_.Name(format::NameKind::kPrivatePool, kBase + 128 * kMiB, "0.3");
  EXPECT_EQ(Rows()["application / allocated"], 2 * kMiB);
}

TEST_F(GpuTest, WhoeverAskedForIt_ASegmentWithBlocksIsPyTorchs) {
  trace_.DriverAlloc(kBase, 20 * kMiB);  // no native stack
  trace_.Alloc(kBase, 5 * kMiB);
  trace_.At(50'000'000);
  trace_.Free(kBase);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / cached", 20 * kMiB)));
  trace_.At(90'000'000);
  trace_.Mark("later");
  const auto timelines = MakeTimelines(*Analyse(trace_), 100);
  const Timeline& timeline = timelines->front();
  EXPECT_THAT(timeline.groups,
              UnorderedElementsAre("unknown owner / allocated",  // until the first block
                                   "PyTorch / allocated", "cached", "fragmentation"));
  for (size_t bucket = 0; bucket < timeline.time_ns.size(); ++bucket) {
    uint64_t total = 0;
    for (const auto& band : timeline.peak)
      total += band[bucket];
    EXPECT_EQ(total, 20 * kMiB) << bucket;
  }
}

TEST_F(GpuTest, BlocksOutsideSegmentsBreakAnInvariantAndStillCount) {
  trace_.StackIs({}, pytorch_);
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Alloc(kBase + 20 * kMiB, 512);
  const Report report = ReportOf(trace_, At("end"));
  EXPECT_THAT(BrokenInvariants(report), HasSubstr("no live block outside a live segment"));
  EXPECT_EQ(report.devices[0].ledger_bytes, 20 * kMiB + 512);
}

TEST_F(GpuTest, SegmentFreedUnderItsBlocks) {
  trace_.StackIs({}, pytorch_);
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Alloc(kBase, 512);
  trace_.DriverFree(kBase);
  trace_.DriverAlloc(kBase, 2 * kMiB);  // the same addresses again
  const Report report = ReportOf(trace_, At("end"));
  EXPECT_THAT(BrokenInvariants(report), HasSubstr("1 blocks of a segment that was freed"));
  EXPECT_EQ(report.devices[0].ledger_bytes, 2 * kMiB);
  EXPECT_EQ(report.devices[0].unbacked_bytes, 512u);
  EXPECT_EQ(ReportOf(trace_).devices[0].ledger_bytes, 20 * kMiB);
}

TEST_F(GpuTest, WithoutDriverEventsTheAllocatorsTotalsSayWhatIsCached) {
  trace_.Alloc(kBase, 512);
  trace_.Add(trace::AllocatorTotals{.allocated = 512, .reserved = 2 * kMiB});
  trace_.Alloc(kBase + 512, 1024);
  trace_.Add(trace::AllocatorTotals{.allocated = 1536, .reserved = 2 * kMiB});
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / allocated", 1536),
                                           Pair("PyTorch / cached", 2 * kMiB - 1536)));
  EXPECT_EQ(BrokenInvariants(ReportOf(trace_)), "");
}

TEST_F(GpuTest, TotalsTellWhatWasLiveBeforeTheRecording) {
  trace_.Alloc(kBase, 512);
  trace_.Add(trace::AllocatorTotals{.allocated = 10'512, .reserved = 2 * kMiB});
  trace_.Free(kBase + 4096, 4000);
  EXPECT_THAT(Rows(),
              UnorderedElementsAre(Pair("PyTorch / allocated", 512), Pair("before recording", 6000),
                                   Pair("PyTorch / cached", 2 * kMiB - 10'512)));
}

TEST_F(GpuTest, ExpandableSegmentsAreOneSegment) {
  trace_.StackIs({}, pytorch_);
  trace_.Add(trace::Reserve{.address = kBase, .size = 1024 * kMiB});
  for (uint64_t i = 0; i < 2; ++i) {
    trace_.Add(trace::HandleCreate{.handle = 0xa0 + i, .size = 20 * kMiB, .native = pytorch_});
    trace_.Add(trace::Map{.address = kBase + i * 20 * kMiB, .size = 20 * kMiB, .handle = 0xa0 + i});
  }
  trace_.Alloc(kBase, 30 * kMiB);  // over both handles
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / allocated", 30 * kMiB),
                                           Pair("PyTorch / fragmentation", 10 * kMiB)));
  trace_.Add(trace::HandleCreate{.handle = 0xa2, .size = 2 * kMiB, .native = pytorch_});
  trace_.Add(trace::Map{.address = kBase + 40 * kMiB, .size = 2 * kMiB, .handle = 0xa2});
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / allocated", 30 * kMiB),
                                           Pair("PyTorch / fragmentation", 12 * kMiB)));
  trace_.Free(kBase);
  trace_.Add(trace::HandleRelease{.handle = 0xa2});
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / cached", 42 * kMiB)));
  trace_.Add(trace::Unmap{.address = kBase, .size = 42 * kMiB});  // all three at once
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / no blocks seen", 40 * kMiB)));
  trace_.Add(trace::HandleRelease{.handle = 0xa0});
  trace_.Add(trace::HandleRelease{.handle = 0xa1});
  EXPECT_THAT(Rows(), IsEmpty());
  EXPECT_THAT(Rows("peak"), UnorderedElementsAre(Pair("PyTorch / allocated", 30 * kMiB),
                                                 Pair("PyTorch / no blocks seen", 2 * kMiB),
                                                 Pair("PyTorch / fragmentation", 10 * kMiB)));
  EXPECT_EQ(BrokenInvariants(ReportOf(trace_)), "");
}

TEST_F(GpuTest, HandlesLiveUntilTheLastReferenceAndMapping) {
  trace_.Add(trace::HandleCreate{.handle = 1, .size = 2 * kMiB});
  trace_.Add(trace::Map{.address = kBase, .size = 2 * kMiB, .handle = 1});
  trace_.Add(trace::HandleRelease{.handle = 1});
  trace_.Add(trace::HandleRetain{.handle = 1, .address = kBase});
  trace_.Add(trace::Unmap{.address = kBase, .size = 2 * kMiB});
  EXPECT_EQ(Rows()["unknown owner / allocated"], 2 * kMiB);
  trace_.Add(trace::HandleRelease{.handle = 1});
  EXPECT_THAT(Rows(), IsEmpty());
  EXPECT_THAT(ReportOf(trace_).losses, IsEmpty());
}

TEST_F(GpuTest, AHandleMappedTwiceIsThereOnce) {
  trace_.StackIs({}, pytorch_);
  for (const uint64_t at : {kBase, kBase + 1024 * kMiB})
    trace_.Add(trace::Reserve{.address = at, .size = 64 * kMiB});
  trace_.Add(trace::HandleCreate{.handle = 1, .size = 2 * kMiB, .native = pytorch_});
  for (const uint64_t at : {kBase, kBase + 1024 * kMiB}) {
    trace_.Add(trace::Map{.address = at, .size = 2 * kMiB, .handle = 1});
    trace_.Alloc(at, 512);
    trace_.Free(at);
  }
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("PyTorch / cached", 2 * kMiB)));
  EXPECT_EQ(BrokenInvariants(ReportOf(trace_)), "");
}

TEST_F(GpuTest, PoolsArePricedByTheirReadings) {
  trace_.StackIs({}, application_);
  trace_.DriverAlloc(kBase, kMiB, MemoryKind::kAsync).As<trace::Alloc>().pool = 0xb0;
  trace_.Add(trace::PoolReading{.pool = 0xb0, .reserved = 32 * kMiB, .used = kMiB});
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("application / allocated", kMiB),
                                           Pair("application / cached", 31 * kMiB)));
  trace_.DriverFree(kBase, MemoryKind::kAsync);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("application / cached", 32 * kMiB)));
  trace_.Add(trace::PoolReading{.pool = 0xb0});
  EXPECT_THAT(Rows(), IsEmpty());
  trace_.Add(trace::PoolReading{.reserved = 64 * kMiB, .used = 60 * kMiB});  // graph memory
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("CUDA graphs / graph memory", 60 * kMiB),
                                           Pair("CUDA graphs / graph memory, cached", 4 * kMiB)));
}

TEST_F(GpuTest, MemoryThatIsNotTheDevices) {
  const trace::DeviceId host = trace_.AddHost();
  trace_.StackIs({}, application_);
  trace_.DriverAlloc(kBase, 8 * kMiB, MemoryKind::kManaged);
  trace_.DriverAlloc(kBase + 64 * kMiB, 8 * kMiB, MemoryKind::kIpcImport);
  trace_.DriverAlloc(0x1000, 4 * kMiB, MemoryKind::kHostPinned);
  trace_.DriverAlloc(0x9000, kMiB, MemoryKind::kHostRegistered);
  const Report report = ReportOf(trace_, At("end"));
  ASSERT_EQ(report.devices.size(), 2u);
  EXPECT_EQ(report.devices[0].ledger_bytes, 0u);
  EXPECT_EQ(report.devices[1].device.value, static_cast<uint32_t>(host.value) + 1);
  EXPECT_EQ(report.devices[1].ledger_bytes, 5 * kMiB);
  EXPECT_THAT(RowBytes(report), UnorderedElementsAre(Pair("application / managed", 0),
                                                     Pair("application / imported", 0),
                                                     Pair("application / pinned", 4 * kMiB),
                                                     Pair("application / registered", kMiB)));
  for (const ReportRow& row : report.rows)
    EXPECT_EQ(row.count, 1u);
}

// ---- implicit memory
// --------------------------------------------------------------------------------

TEST_F(GpuTest, ContextIsWhatTheReadingsAddToTheBaseline) {
  Context();
  const Report report = ReportOf(trace_);
  EXPECT_THAT(RowBytes(report),
              UnorderedElementsAre(Pair("other processes", 10 * kMiB),
                                   Pair("driver-owned / context / cuCtxCreate_v4", 500 * kMiB)));
  EXPECT_EQ(report.devices[0].nvml_bytes, 510 * kMiB);
  EXPECT_EQ(report.devices[0].residual_bytes, 0);
  ASSERT_EQ(report.processes.size(), 1u);
  EXPECT_EQ(report.processes[0].ledger_bytes, 500 * kMiB);
  ASSERT_EQ(report.residuals.size(), 1u);
  EXPECT_EQ(report.residuals[0].samples, 1u);
  EXPECT_EQ(report.residuals[0].worst_bytes, 0);
  EXPECT_EQ(report.residuals[0].estimated_bytes, 510 * kMiB);
}

TEST_F(GpuTest, WhatAppearsDuringInitIsNotSomebodyElses) {
  const int64_t before_ns = trace_.Sample(10 * kMiB).end_ns;
  trace_.Sample(11 * kMiB);
  trace_.Sample(13 * kMiB);
  trace::Event& init = trace_.Implicit(ImplicitKind::kInit, "cuInit");
  init.As<trace::Implicit>().device = trace::kNoDevice;
  init.begin_ns = before_ns + 1;
  trace_.ContextCreate(1);
  trace_.Reading(513 * kMiB);
  EXPECT_THAT(Rows(), UnorderedElementsAre(
                          Pair("other processes", 10 * kMiB),
                          Pair("driver-owned / context / cuInit + cuCtxCreate_v4", 503 * kMiB)));
}

TEST_F(GpuTest, ExplicitAllocationsAreNotPartOfWhatReadingsShow) {
  Context();
  trace_.StackIs({}, application_);
  trace_.Implicit(ImplicitKind::kLaunch, "cuLaunchKernel", "saxpy");
  trace_.DriverAlloc(kBase, 64 * kMiB);
  trace_.Reading(510 * kMiB + 64 * kMiB + 92 * kMiB);
  trace_.Implicit(ImplicitKind::kStream, "cuStreamCreate");
  trace_.Implicit(ImplicitKind::kModule, "cuModuleLoadData", "m");
  trace_.Reading(510 * kMiB + 64 * kMiB + 92 * kMiB + 4 * kMiB);
  trace_.Implicit(ImplicitKind::kLaunch, "cuLaunchKernel", "free_of_charge");
  trace_.Reading(510 * kMiB + 64 * kMiB + 92 * kMiB + 4 * kMiB);
  EXPECT_THAT(Rows(),
              UnorderedElementsAre(
                  Pair("other processes", 10 * kMiB),
                  Pair("driver-owned / context / cuCtxCreate_v4", 500 * kMiB),
                  Pair("application / allocated", 64 * kMiB),
                  Pair("driver-owned / first launches (code, local memory) / cuLaunchKernel saxpy",
                       92 * kMiB),
                  Pair("driver-owned / several calls at once / cuStreamCreate + cuModuleLoadData m",
                       4 * kMiB)));
  ReportQuery query = At("end");
  query.by = {Dimension::kCategory};
  EXPECT_THAT(RowBytes(ReportOf(trace_, query)),
              UnorderedElementsAre(Pair("driver", 596 * kMiB), Pair("unknown", 74 * kMiB)));
}

TEST_F(GpuTest, ShrinkingTakesFromRowsOfTheSameKind) {
  Context();
  trace_.Implicit(ImplicitKind::kModule, "cuModuleLoadData", "m");
  trace_.Reading(514 * kMiB);
  trace_.Implicit(ImplicitKind::kLimit, "cuCtxSetLimit");
  trace_.Reading(1514 * kMiB);
  trace_.Implicit(ImplicitKind::kLimit, "cuCtxSetLimit");
  trace_.Reading(614 * kMiB);
  EXPECT_THAT(
      Rows(),
      UnorderedElementsAre(
          Pair("other processes", 10 * kMiB),
          Pair("driver-owned / context / cuCtxCreate_v4", 500 * kMiB),
          Pair("driver-owned / module code and globals / cuModuleLoadData m", 4 * kMiB),
          Pair("driver-owned / limits (stack, heap, printf FIFO) / cuCtxSetLimit", 100 * kMiB)));
}

TEST_F(GpuTest, ALimitThatIsBeingSetMayHaveGivenBackMoreThanItKeeps) {
  Context();
  trace_.Implicit(ImplicitKind::kLaunch, "cuLaunchKernel", "deep");
  trace_.Reading(16'510 * kMiB);
  const int64_t before_ns = trace_.Sample(16'510 * kMiB).end_ns;
  trace_.Sample(110 * kMiB);
  trace_.Implicit(ImplicitKind::kLimit, "cuCtxSetLimit").begin_ns = before_ns + 20'000;
  trace_.Reading(510 * kMiB);
  trace_.Sample(510 * kMiB);
  const Report report = ReportOf(trace_);
  ASSERT_EQ(report.residuals.size(), 1u);
  EXPECT_EQ(report.residuals[0].worst_bytes, 0);
  EXPECT_EQ(report.residuals[0].samples_in_transit, 1u);
}

TEST_F(GpuTest, AKernelThatNeedsMoreLocalMemoryMayHaveGivenBackWhatTheLastOneHad) {
  Context();
  const int64_t before_ns = trace_.Sample(510 * kMiB).end_ns;
  trace_.Sample(96 * kMiB);
  trace_.Implicit(ImplicitKind::kLaunch, "cuLaunchKernel", "deep").begin_ns = before_ns + 20'000;
  trace_.Reading(600 * kMiB);
  trace_.Sample(600 * kMiB);
  const Report report = ReportOf(trace_);
  ASSERT_EQ(report.residuals.size(), 1u);
  EXPECT_EQ(report.residuals[0].worst_bytes, 0);
  EXPECT_EQ(report.residuals[0].samples_in_transit, 1u);
}

TEST_F(GpuTest, WhatElseShrinksIsTakenFromTheContextLast) {
  trace_.Sample(10 * kMiB);
  trace_.Implicit(ImplicitKind::kStream, "cuStreamCreate");
  trace_.Reading(30 * kMiB);
  trace_.ContextCreate(0xc0);
  trace_.Reading(530 * kMiB);
  trace_.Implicit(ImplicitKind::kModule, "cuModuleUnload", "m");
  trace_.Reading(525 * kMiB);
  EXPECT_THAT(Rows(),
              UnorderedElementsAre(Pair("other processes", 10 * kMiB),
                                   Pair("driver-owned / streams / cuStreamCreate", 15 * kMiB),
                                   Pair("driver-owned / context / cuCtxCreate_v4", 500 * kMiB)));
}

TEST_F(GpuTest, WhatNobodyCausedIsARowThatBreaksTheInvariant) {
  Context();
  trace_.Sample(510 * kMiB);
  trace_.StackIs({}, application_);
  trace_.DriverAlloc(kBase, 64 * kMiB);
  trace_.Sample(581 * kMiB);
  trace_.Sample(581 * kMiB);
  const Report report = ReportOf(trace_);
  EXPECT_EQ(report.devices[0].ledger_bytes, 581 * kMiB);
  EXPECT_EQ(report.devices[0].residual_bytes, 0);
  EXPECT_EQ(report.residuals[0].worst_bytes, 0);
  EXPECT_THAT(Rows(), ::testing::Contains(Pair("unexplained / at cuMemAlloc_v2", 7 * kMiB)));
  EXPECT_FALSE(report.invariants.back().holds);
  EXPECT_THAT(report.invariants.back().detail,
              ::testing::ContainsRegex("\\+7.00 MiB since .*, at cuMemAlloc_v2.*: no known cause"));
}

TEST_F(GpuTest, WhatIsMissingIsSaidAndStaysInTheResidual) {
  Context();
  trace_.Sample(510 * kMiB);
  trace_.Sample(470 * kMiB);
  trace_.Sample(470 * kMiB);
  const Report report = ReportOf(trace_);
  EXPECT_EQ(report.devices[0].ledger_bytes, 510 * kMiB);
  EXPECT_EQ(report.residuals[0].worst_bytes, -40 * static_cast<int64_t>(kMiB));
  EXPECT_THAT(report.invariants.back().detail, ::testing::HasSubstr("-40.0 MiB since"));
}

TEST_F(GpuTest, WithoutABaselineTheContextIsNotGuessed) {
  trace_.ContextCreate(0xc0);
  trace_.Reading(510 * kMiB);
  trace_.Implicit(ImplicitKind::kModule, "cuModuleLoadData", "m");
  trace_.Reading(512 * kMiB);
  const Report report = ReportOf(trace_);
  EXPECT_THAT(
      RowBytes(report),
      ElementsAre(Pair("driver-owned / module code and globals / cuModuleLoadData m", 2 * kMiB)));
  ASSERT_EQ(report.losses.size(), 1u);
  EXPECT_EQ(report.losses[0].name, "implicit driver memory not measured");
}

TEST_F(GpuTest, ReadingsMayDifferFromNvmlByAConstant) {
  constexpr uint64_t kOffset = 3 * kMiB;
  trace_.Sample(10 * kMiB);
  trace_.ContextCreate(0xc0);
  trace_.Reading(510 * kMiB + kOffset);
  trace_.Sample(510 * kMiB);
  trace_.DriverAlloc(kBase, 4 * kMiB);
  trace_.Sample(514 * kMiB);
  trace_.Implicit(ImplicitKind::kModule, "cuModuleLoadData", "m");
  trace_.Reading(516 * kMiB + kOffset);
  trace_.Sample(516 * kMiB);
  const Report report = ReportOf(trace_);
  EXPECT_EQ(RowBytes(report)["driver-owned / context / cuCtxCreate_v4"], 500 * kMiB);
  EXPECT_EQ(report.devices[0].residual_bytes, 0);
  EXPECT_EQ(report.residuals[0].worst_bytes, 0);
  EXPECT_EQ(BrokenInvariants(report), "");
  EXPECT_THAT(report.invariants.back().detail, HasSubstr("cuMemGetInfo reads 3145728 bytes more"));
}

TEST_F(GpuTest, RmInternalIsWhatTheProcessFigureLacks) {
  Context();
  trace_.ProcessSample(495 * kMiB);
  trace_.DriverAlloc(kBase, 2 * kMiB);
  trace_.Sample(512 * kMiB);
  trace_.ProcessSample(497 * kMiB);
  const Report report = ReportOf(trace_);
  EXPECT_THAT(RowBytes(report),
              UnorderedElementsAre(Pair("other processes", 10 * kMiB),
                                   Pair("driver-owned / RM-internal", 5 * kMiB),
                                   Pair("driver-owned / context / cuCtxCreate_v4", 495 * kMiB),
                                   Pair("unknown owner / allocated", 2 * kMiB)));
  EXPECT_EQ(report.processes[0].nvml_bytes, 497 * kMiB);
  EXPECT_EQ(report.processes[0].residual_bytes, 0);
  EXPECT_EQ(report.devices[0].residual_bytes, 0);
  for (const ReportRow& row : report.rows)
    EXPECT_EQ(row.pid.has_value(),
              row.path.back() != "RM-internal" && row.path.back() != "other processes");
}

TEST_F(GpuTest, AReadingDuringAnotherThreadsCallIsTakenBack) {
  Context();
  // Thread B is inside a cuMemAlloc of 64 MiB that has taken effect, but not returned.
  trace_.At(1'000'000);
  trace_.Implicit(ImplicitKind::kLaunch, "cuLaunchKernel", "k");
  trace_.At(1'010'000);
  trace_.Reading(510 * kMiB + 64 * kMiB + 2 * kMiB);
  trace_.At(1'020'000);
  trace_.DriverAlloc(kBase, 64 * kMiB).begin_ns = TraceBuilder::kStartNs + 1'005'000;
  trace_.At(1'030'000);
  trace_.Reading(510 * kMiB + 64 * kMiB + 2 * kMiB);
  EXPECT_EQ(Rows()["driver-owned / first launches (code, local memory) / cuLaunchKernel k"],
            2 * kMiB);
  EXPECT_EQ(ReportOf(trace_, At("end")).devices[0].ledger_bytes, 576 * kMiB);
}

TEST_F(GpuTest, ALongCallIsGivenWhatOthersReadingsShowed) {
  Context();
  trace_.At(1'000'000);
  trace_.Reading(514 * kMiB);
  trace_.Reading(516 * kMiB);
  trace_.At(2'000'000);
  trace_.Implicit(ImplicitKind::kModule, "cuModuleLoadData", "big").begin_ns =
      TraceBuilder::kStartNs + 900'000;
  EXPECT_EQ(Rows()["driver-owned / module code and globals / cuModuleLoadData big"], 6 * kMiB);
  trace_.Reading(516 * kMiB);
  EXPECT_EQ(ReportOf(trace_, At("end")).devices[0].ledger_bytes, 516 * kMiB);
}

// ---- in transit
// -------------------------------------------------------------------------------------

TEST_F(GpuTest, SamplesDuringCallsAreComparedWithAnInterval) {
  Context();
  trace_.At(1'000'000);
  // The sample is taken while the allocation is under way and sees it already.
  trace_.Sample(574 * kMiB);
  trace_.At(1'100'000);
  trace_.DriverAlloc(kBase, 64 * kMiB).begin_ns = TraceBuilder::kStartNs + 900'000;
  // A free under way: the memory is still there.
  trace_.At(2'000'000);
  trace_.DriverFree(kBase).end_ns = TraceBuilder::kStartNs + 2'500'000;
  trace_.At(2'200'000);
  trace_.Sample(574 * kMiB);
  trace_.At(3'000'000);
  trace_.Sample(510 * kMiB);
  // And one that nothing explains.
  trace_.At(4'000'000);
  trace_.Sample(511 * kMiB);
  const Report report = ReportOf(trace_);
  ASSERT_EQ(report.residuals.size(), 1u);
  EXPECT_EQ(report.residuals[0].samples, 5u);
  EXPECT_EQ(report.residuals[0].samples_in_transit, 2u);
  EXPECT_EQ(report.residuals[0].worst_bytes, static_cast<int64_t>(kMiB));
  EXPECT_EQ(report.residuals[0].worst_at_ns, TraceBuilder::kStartNs + 4'000'000);
}

TEST_F(GpuTest, ClocksOfTwoProcessesAgreeOnlyRoughly) {
  Context();
  trace_.At(1'000'000);
  trace_.DriverAlloc(kBase, 64 * kMiB);
  trace_.At(2'000'000);
  trace_.Sample(510 * kMiB);  // already without what is freed 2 us later
  trace_.At(2'002'000);
  trace_.DriverFree(kBase);
  trace_.At(3'000'000);
  trace_.Sample(510 * kMiB);
  const Report report = ReportOf(trace_);
  EXPECT_EQ(report.residuals[0].worst_bytes, 0);
  EXPECT_EQ(report.residuals[0].samples_in_transit, 1u);
}

TEST_F(GpuTest, OutsideTheIntervalTheDistanceIsResidual) {
  Context();
  trace_.At(1'000'000);
  trace_.Sample(580 * kMiB);
  trace_.At(1'100'000);
  trace_.DriverAlloc(kBase, 64 * kMiB).begin_ns = TraceBuilder::kStartNs + 900'000;
  EXPECT_EQ(ReportOf(trace_).residuals[0].worst_bytes, static_cast<int64_t>(6 * kMiB));
}

TEST_F(GpuTest, InTransitIsARowOfItsOwn) {
  Context();
  trace_.At(1'000'000);
  trace_.DriverAlloc(kBase, 100 * kMiB);
  trace_.At(2'000'000);
  trace_.DriverFree(kBase).end_ns = TraceBuilder::kStartNs + 2'500'000;
  trace_.At(2'100'000);
  trace_.Sample(610 * kMiB);
  const Report report = ReportOf(trace_, At("0.0022"));
  EXPECT_EQ(RowBytes(report)["driver-owned / in transit"], 0u);  // outside the recording: no report
  trace_.At(9'000'000);
  trace_.Mark("later");
  const Report later = ReportOf(trace_, At("0.0022"));
  EXPECT_EQ(later.devices[0].in_transit_bytes, static_cast<int64_t>(100 * kMiB));
  EXPECT_EQ(RowBytes(later)["driver-owned / in transit"], 100 * kMiB);
  EXPECT_EQ(later.devices[0].residual_bytes, 0);
  EXPECT_EQ(later.devices[0].ledger_bytes, 610 * kMiB);
}

TEST_F(GpuTest, ASampleOfTheSameTotalElsewhereServes) {
  Context();
  trace_.DriverAlloc(kBase, 100 * kMiB);  // the peak, too short for a sample
  trace_.DriverFree(kBase);
  trace_.DriverAlloc(kBase, 100 * kMiB);
  trace_.Sample(612 * kMiB);
  const Report report = ReportOf(trace_);
  EXPECT_EQ(report.devices[0].nvml_bytes, 612 * kMiB);
  EXPECT_EQ(report.devices[0].residual_bytes, static_cast<int64_t>(2 * kMiB));
}

TEST_F(GpuTest, ASampleOfAnotherStateIsNoAnswer) {
  Context();
  trace_.DriverAlloc(kBase, 100 * kMiB);  // the peak: no sample was taken while it lasted
  trace_.DriverFree(kBase);
  trace_.Sample(510 * kMiB);
  const Report report = ReportOf(trace_);
  EXPECT_EQ(report.devices[0].ledger_bytes, 610 * kMiB);
  EXPECT_FALSE(report.devices[0].nvml_bytes.has_value());
  EXPECT_FALSE(report.devices[0].residual_bytes.has_value());
  EXPECT_EQ(report.residuals[0].worst_bytes, 0);
}

// ---- ends
// -------------------------------------------------------------------------------------------

TEST_F(GpuTest, ADestroyedContextTakesItsMemoryWithIt) {
  Context();
  trace_.DriverAlloc(kBase, 2 * kMiB).As<trace::Alloc>().context = 0xc0;
  trace_.Add(trace::ContextDestroy{.context = 0xc0});
  trace_.Sample(10 * kMiB);
  const Report report = ReportOf(trace_, At("end"));
  EXPECT_THAT(RowBytes(report), ElementsAre(Pair("other processes", 10 * kMiB)));
  EXPECT_EQ(report.devices[0].residual_bytes, 0);
}

TEST_F(GpuTest, TheDriverFreesBetweenTeardownAndTheEnd) {
  Context();
  trace_.At(1'000'000);
  trace_.Teardown();
  trace_.At(2'000'000);
  trace_.Sample(10 * kMiB);
  trace_.At(3'000'000);
  trace_.ProcessEnd();
  trace_.At(4'000'000);
  trace_.Sample(20 * kMiB);  // somebody else's
  const Report report = ReportOf(trace_, At("end"));
  EXPECT_EQ(report.devices[0].ledger_bytes, 510 * kMiB);
  EXPECT_EQ(report.residuals[0].worst_bytes, 0);
  EXPECT_EQ(report.residuals[0].samples_in_transit, 1u);
}

TEST_F(GpuTest, DevicesThatNobodyTouchedAreLeftOut) {
  const trace::DeviceId other = trace_.AddGpu(1);
  Context();
  trace_.On(other);
  trace_.Sample(7 * kMiB);
  EXPECT_EQ(ReportOf(trace_).devices.size(), 1u);
}

TEST_F(GpuTest, SamplesAloneMakeAReport) {
  trace_.Sample(7 * kMiB);
  trace_.Sample(9 * kMiB);
  trace_.Sample(8 * kMiB);
  const Report report = ReportOf(trace_);
  ASSERT_EQ(report.devices.size(), 1u);
  EXPECT_THAT(RowBytes(report), ElementsAre(Pair("other processes", 9 * kMiB)));
  EXPECT_EQ(report.devices[0].residual_bytes, 0);
}

TEST_F(GpuTest, ArraysArePricedByReadingsWhereThereAreSome) {
  Context();
  trace_.StackIs({}, application_);
  trace_.DriverAlloc(0xa55, 5 * kMiB, MemoryKind::kArray);
  EXPECT_EQ(Rows()["application / arrays"], 5 * kMiB);
  trace_.Reading(516 * kMiB);
  EXPECT_EQ(Rows()["application / arrays"], 5 * kMiB);
  EXPECT_EQ(Rows()["application / rounding"], kMiB);
  trace_.DriverFree(0xa55, MemoryKind::kArray);
  trace_.Reading(510 * kMiB);
  EXPECT_EQ(ReportOf(trace_, At("end")).devices[0].ledger_bytes, 510 * kMiB);
  EXPECT_EQ(ReportOf(trace_).devices[0].ledger_bytes, 516 * kMiB);
  EXPECT_EQ(BrokenInvariants(ReportOf(trace_)), "");
}

}  // namespace
}  // namespace vramscope::query
