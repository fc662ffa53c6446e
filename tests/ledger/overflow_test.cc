// SPDX-License-Identifier: Apache-2.0
// Memory of the host in place of a GPU's (`run --overflow`): whose it is, and the peak without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/report_text.h"
#include "query/dimensions/report.h"
#include "query/oom/out_of_memory.h"

namespace vramscope::query {
namespace {

using format::MemoryKind;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class OverflowTest : public ::testing::Test {
 protected:
  OverflowTest() {
    gpu_ = trace_.AddGpu();
    other_ = trace_.AddGpu(1);
    host_ = trace_.AddHost();
    trace_.AddProcess(100);
    trace_.On(gpu_);
    trace_.StepIs(50'000);
    trace_.StackIs({}, trace_.Native({"/usr/bin/python3.11", "/venv/torch/lib/libc10_cuda.so",
                                      "/usr/lib/libcuda.so.1"}));
  }
  void HostAlloc(uint64_t address, uint64_t asked) {
    trace_.DriverAlloc(address, asked, MemoryKind::kOverflow).As<trace::Alloc>().actual =
        (asked + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
  }
  std::map<std::string, uint64_t> RowsOf(int32_t device, const std::string& when) {
    std::map<std::string, uint64_t> rows;
    const Report report = ReportOf(trace_, At(when));
    for (const auto& invariant : report.invariants)
      EXPECT_TRUE(invariant.holds) << invariant.name << ": " << invariant.detail;
    for (const ReportRow& row : report.rows) {
      for (const DeviceReport& known : report.devices) {
        if (known.device == row.device && known.index == device)
          rows[row.path.front() + " / " + row.path.back()] += row.bytes;
      }
    }
    return rows;
  }

  TraceBuilder trace_;
  trace::DeviceId gpu_, other_, host_;
};

TEST_F(OverflowTest, StandsUnderTheHostAndNotUnderTheGpu) {
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Alloc(kBase, 15 * kMiB);
  HostAlloc(kBase + 64 * kMiB, 40 * kMiB);
  trace_.Alloc(kBase + 64 * kMiB, 30 * kMiB);
  EXPECT_THAT(RowsOf(0, "end"), UnorderedElementsAre(Pair("PyTorch / allocated", 15 * kMiB),
                                                     Pair("PyTorch / fragmentation", 5 * kMiB)));
  EXPECT_THAT(RowsOf(-2, "end"), UnorderedElementsAre(Pair("PyTorch / allocated", 30 * kMiB),
                                                      Pair("PyTorch / fragmentation", 10 * kMiB)));
  trace_.Free(kBase + 64 * kMiB);
  EXPECT_THAT(RowsOf(-2, "end"), UnorderedElementsAre(Pair("PyTorch / cached", 40 * kMiB)));
  trace_.DriverFree(kBase + 64 * kMiB, MemoryKind::kOverflow);
  EXPECT_THAT(RowsOf(-2, "end"), IsEmpty());
  EXPECT_THAT(RowsOf(0, "end"), UnorderedElementsAre(Pair("PyTorch / allocated", 15 * kMiB),
                                                     Pair("PyTorch / fragmentation", 5 * kMiB)));
}

TEST_F(OverflowTest, ThePeakIsOfBothAndOfWhatWasInUse) {
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Alloc(kBase, 20 * kMiB);
  HostAlloc(kBase + 64 * kMiB, 40 * kMiB);
  trace_.Alloc(kBase + 64 * kMiB, 30 * kMiB);
  trace_.Free(kBase + 64 * kMiB);
  HostAlloc(kBase + 128 * kMiB, 7 * kMiB);  // more is held from here on, less is in use
  trace_.On(other_);
  trace_.DriverAlloc(kBase + 512 * kMiB, 300 * kMiB);
  const auto recording = Analyse(trace_);
  const auto found = FindOverflow(*recording);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 1u);
  const Overflow& overflow = found->front();
  EXPECT_EQ(overflow.device, tables::DeviceId{1});
  EXPECT_EQ(overflow.used_bytes, 50 * kMiB);
  EXPECT_EQ(overflow.held_bytes, 60 * kMiB);
  EXPECT_EQ(overflow.host_bytes, 40 * kMiB);
  EXPECT_EQ(overflow.most_host_bytes, 48 * kMiB);
  EXPECT_EQ(overflow.card_gb, 8u);
}

TEST_F(OverflowTest, ARequestThatTheHostAnsweredWasServed) {
  trace_.Add(trace::Failure{.api = trace_.Text("cuMemAlloc_v2"), .result = 2, .size = 40 * kMiB});
  HostAlloc(kBase, 40 * kMiB);
  const auto refusals = FindRefusals(*Analyse(trace_));
  ASSERT_TRUE(refusals.ok());
  ASSERT_EQ(refusals->size(), 1u);
  EXPECT_TRUE(refusals->front().served);
}

TEST_F(OverflowTest, IsNothingWithoutIt) {
  trace_.DriverAlloc(kBase, 20 * kMiB);
  const auto found = FindOverflow(*Analyse(trace_));
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->empty());
}

}  // namespace
}  // namespace vramscope::query
