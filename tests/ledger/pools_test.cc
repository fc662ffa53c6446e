// SPDX-License-Identifier: Apache-2.0
// Tags, pools and blocks of programs that know no PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/training.h"

namespace vramscope::query {
namespace {

using format::NameKind;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class PoolTest : public ::testing::Test {
 protected:
  PoolTest() {
    trace_.AddGpu();
    trace_.AddProcess(100);
    trace_.StepIs(50'000);
    trace_.StackIs({}, trace_.Native({"/home/me/solver"}));
  }
  Rows By(const std::string& by, const std::string& when = "end") {
    ReportQuery query = At(when);
    if (!by.empty())
      query.by = {*ParseDimension(by)};
    const Report report = ReportOf(trace_, query);
    EXPECT_EQ(BrokenInvariants(report), "");
    return RowBytes(report);
  }
  TraceBuilder trace_;
};

TEST_F(PoolTest, BlocksOfAProgramsPoolAreItsOwn) {
  trace_.DriverAlloc(kBase, 4 * kMiB);
  trace_.PoolAlloc(kBase, 4096, 3000, "i2h");
  trace_.ScopeIs("cell/gates");
  trace_.PoolAlloc(kBase + 4096, 4096, 0, "");
  trace_.ScopeIs("");
  trace_.PoolAlloc(kBase + 8192, 4096, 4096, "cell/workspace");
  EXPECT_THAT(By(""),
              UnorderedElementsAre(Pair("application / allocated", 3000 + 4096 + 4096),
                                   Pair("application / rounding", 1096),
                                   Pair("application / fragmentation", 4 * kMiB - 3 * 4096)));
  EXPECT_THAT(By("category"), UnorderedElementsAre(Pair("unknown", 7096), Pair("workspace", 4096),
                                                   Pair("rounding", 1096),
                                                   Pair("fragmentation", 4 * kMiB - 3 * 4096)));
  EXPECT_THAT(By("tag"), UnorderedElementsAre(Pair("i2h", 4096), Pair("cell/gates", 4096),
                                              Pair("cell/workspace", 4096),
                                              Pair("(none)", 4 * kMiB - 3 * 4096)));
  // Memory used again takes the new name.
  trace_.Free(kBase);
  trace_.PoolAlloc(kBase, 4096, 0, "h2h");
  EXPECT_EQ(By("tag")["h2h"], 4096u);
  EXPECT_EQ(By("tag").count("i2h"), 0u);
  trace_.Free(kBase);
  trace_.Free(kBase + 4096);
  trace_.Free(kBase + 8192);
  EXPECT_THAT(By(""), ElementsAre(Pair("application / cached", 4 * kMiB)));
}

// The driver put it into the free end of a page that something else has.
TEST_F(PoolTest, ItsMemoryMayShareAPage) {
  constexpr uint64_t kHalf = kMiB + kMiB / 2;
  trace_.DriverAlloc(kBase, 4096);
  trace_.DriverAlloc(kBase + 4096, kHalf);
  trace_.PoolAlloc(kBase + 4096, 8192, 0, "x");
  EXPECT_THAT(By(""), UnorderedElementsAre(Pair("application / allocated", 4096 + 8192),
                                           Pair("application / fragmentation", kHalf - 8192),
                                           Pair("rounding", 2 * kMiB - kHalf - 4096)));
  trace_.Free(kBase + 4096);
  trace_.DriverFree(kBase);
  EXPECT_THAT(By(""), UnorderedElementsAre(Pair("application / cached", kHalf),
                                           Pair("rounding", 2 * kMiB - kHalf)));
  trace_.DriverFree(kBase + 4096);
  EXPECT_THAT(By(""), ElementsAre());
}

// Allocations of 1 MiB and less, several in a page.
TEST_F(PoolTest, ItDividesSmallAllocationsToo) {
  trace_.DriverAlloc(kBase, 64 << 10);
  trace_.PoolAlloc(kBase, 64 << 10, 0, "x");
  trace_.DriverAlloc(kBase + (64 << 10), 128 << 10);
  trace_.PoolAlloc(kBase + (64 << 10), 128 << 10, 0, "y");
  EXPECT_THAT(By(""), UnorderedElementsAre(Pair("application / allocated", 192 << 10),
                                           Pair("rounding", 2 * kMiB - (192 << 10))));
  trace_.Free(kBase + (64 << 10));
  trace_.PoolAlloc(kBase + (64 << 10), 100 << 10, 0, "z");
  trace_.PoolAlloc(kBase + (164 << 10), 4 << 10, 0, "w");
  trace_.Free(kBase);
  EXPECT_THAT(By("tag"), UnorderedElementsAre(Pair("z", 100 << 10), Pair("w", 4 << 10),
                                              Pair("(none)", 2 * kMiB - (104 << 10))));
  EXPECT_EQ(By("")["application / cached"], 64u << 10);
  trace_.DriverFree(kBase);
  EXPECT_EQ(By("").count("application / cached"), 0u);
  EXPECT_TRUE(ReportOf(trace_).losses.empty());
}

// Managed memory has no segments.
TEST_F(PoolTest, BlocksOfMemoryThatStandsInTheLedgerOtherwiseDoNotCount) {
  trace_.DriverAlloc(kBase, 8 * kMiB, format::MemoryKind::kManaged);
  for (int i = 0; i < 3; ++i) {
    trace_.PoolAlloc(kBase + 4096, 4096, 0, "x");
    trace_.Free(kBase + 4096);
  }
  const Report report = ReportOf(trace_);
  EXPECT_EQ(BrokenInvariants(report), "");
  ASSERT_EQ(report.losses.size(), 1u);
  EXPECT_EQ(report.losses[0].name, "names of unknown memory");
}

TEST_F(PoolTest, ATagNamesAnAllocationUntilItGetsAnother) {
  trace_.DriverAlloc(kBase, 4 * kMiB);
  trace_.Name(NameKind::kTag, kBase, "halo", 3 * kMiB);
  trace_.Mark("first");
  trace_.Name(NameKind::kTag, kBase, "grid");
  trace_.Mark("second");
  EXPECT_THAT(By("tag", "mark:first"), ElementsAre(Pair("halo", 4 * kMiB)));
  EXPECT_THAT(By("", "mark:first"), UnorderedElementsAre(Pair("application / allocated", 3 * kMiB),
                                                         Pair("application / rounding", kMiB)));
  EXPECT_THAT(By("tag", "mark:second"), ElementsAre(Pair("grid", 4 * kMiB)));
  EXPECT_THAT(By("", "mark:second"), ElementsAre(Pair("application / allocated", 4 * kMiB)));
  EXPECT_EQ(Allocations(*Analyse(trace_)).size(), 2u);
  const auto timelines = MakeTimelines(*Analyse(trace_), 100);
  EXPECT_THAT(timelines->front().groups, ElementsAre("rounding", "application / allocated"));
}

TEST_F(PoolTest, ATaggedBlockGivenOutAgainIsAnother) {
  trace_.DriverAlloc(kBase, 4 * kMiB);
  trace_.PoolAlloc(kBase, kMiB, 0, "a");
  trace_.Mark("first");
  trace_.DriverAlloc(kBase + 64 * kMiB, 2 * kMiB);
  trace_.Name(NameKind::kTag, kBase, "b");
  EXPECT_EQ(By("tag", "mark:first")["a"], kMiB);
  EXPECT_EQ(By("tag")["b"], kMiB);
  EXPECT_EQ(By("tag").count("a"), 0u);
  EXPECT_EQ(By("tag", "peak")["a"], kMiB);
}

TEST_F(PoolTest, PoolsHaveNames) {
  trace_.DriverAlloc(kBase, 4 * kMiB, format::MemoryKind::kAsync).As<trace::Alloc>().pool = 0xb001;
  trace_.Name(NameKind::kPool, 0xb001, "scratch");
  trace_.Name(NameKind::kPool, 0xb002, "later");
  trace_.Add(trace::PoolReading{.pool = 0xb001, .reserved = 6 * kMiB, .used = 4 * kMiB});
  trace_.DriverAlloc(kBase + 64 * kMiB, kMiB, format::MemoryKind::kAsync).As<trace::Alloc>().pool =
      0xb002;
  EXPECT_THAT(By("tag"), UnorderedElementsAre(Pair("scratch", 6 * kMiB), Pair("later", kMiB)));
}

TEST_F(PoolTest, LibrariesOwnWorkspacesAndBuffers) {
  trace_.StackIs({}, trace_.Native({"/home/me/solver", "/usr/lib/libcublas.so.13"}));
  trace_.DriverAlloc(kBase, 4 * kMiB);
  trace_.StackIs({}, trace_.Native({"/home/me/solver", "/usr/lib/libnccl.so.2"}));
  trace_.DriverAlloc(kBase + 64 * kMiB, 6 * kMiB);
  EXPECT_THAT(By("category"),
              UnorderedElementsAre(Pair("workspace", 4 * kMiB), Pair("communication", 6 * kMiB)));
  EXPECT_THAT(By(""), UnorderedElementsAre(Pair("cuBLAS / allocated", 4 * kMiB),
                                           Pair("NCCL / allocated", 6 * kMiB)));
}

}  // namespace
}  // namespace vramscope::query
