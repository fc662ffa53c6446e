// SPDX-License-Identifier: Apache-2.0
// Segments of PyTorch's made by hand, in which the last request found no room.
#include <gtest/gtest.h>

#include "base/units.h"
#include "query/report/report_parts.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;

constexpr int64_t kAt = 1000;

class CachedTest : public ::testing::Test {
 protected:
  CachedTest() {
    torch_ = builder_.Text("PyTorch");
    builder_.tables.session.begin_ns = 1;
    builder_.tables.session.end_ns = 2000;
    account_ =
        builder_.Account(builder_.Process(7, 2000), builder_.Device(tables::DeviceKind::kGpu, 0));
    block_ = builder_.Site(Torch(Part::kAllocated, Category::kActivation));
  }

  tables::SiteRow Torch(Part part, Category category) {
    tables::SiteRow row = builder_.SiteOf(account_, part, category);
    row.owner = torch_;
    return row;
  }

  tables::SegmentId Segment(Part in_use = Part::kFragmentation) {
    const auto segment =
        builder_.Segment(builder_.Site(Torch(Part::kCached, Category::kCached)), in_use);
    builder_.tables.segments[segment.value].address = Address(segment, 0);
    return segment;
  }
  // Memory of the segment, from `from` MiB on.
  void Map(tables::SegmentId segment, int64_t begin_ns, uint64_t from, uint64_t mib) {
    tables::SiteRow site = Torch(Part::kCached, Category::kCached);
    site.backing = 1;
    Add(builder_.Site(site), segment, begin_ns, tables::kNever, from, mib);
  }
  void Block(tables::SegmentId segment,
             int64_t begin_ns,
             int64_t end_ns,
             uint64_t from,
             uint64_t mib) {
    Add(block_, segment, begin_ns, end_ns, from, mib);
  }
  tables::SegmentId Whole(int64_t begin_ns, uint64_t mib) {
    const tables::SegmentId segment = Segment();
    Map(segment, begin_ns, 0, mib);
    return segment;
  }

  std::vector<CachedMemory> Find() {
    const auto recording = builder_.Make();
    const Instants at = AllAt(recording->tables(), kAt);
    const auto live = ReadLiveSet(*recording, at);
    EXPECT_TRUE(live.ok());
    auto found = FindCached(*recording, at, *live);
    EXPECT_TRUE(found.ok());
    return std::move(*found);
  }

 private:
  static uint64_t Address(tables::SegmentId segment, uint64_t mib) {
    return (uint64_t{segment.value} << 40) + mib * kMiB;
  }
  void Add(tables::SiteId site,
           tables::SegmentId segment,
           int64_t begin_ns,
           int64_t end_ns,
           uint64_t from,
           uint64_t mib) {
    builder_.Row(site, begin_ns, end_ns, mib * kMiB, segment);
    builder_.rows.back().address = Address(segment, from);
  }

  RecordingBuilder builder_;
  tables::AccountId account_;
  tables::StringId torch_;  // the one id of the text, as in a recording
  tables::SiteId block_;
};

TEST_F(CachedTest, FreeBytes_ByWhyTheRequestDidNotGetThem) {
  Whole(10, 64);  // nothing was ever in it: of another stream
  const auto freed = Whole(20, 40);
  Block(freed, 21, 600, 0, 40);
  const auto holes = Whole(30, 50);
  Block(holes, 31, tables::kNever, 8, 32);
  const auto newest = Whole(500, 20);
  Block(newest, 501, tables::kNever, 0, 19);
  Block(newest, 700, 800, 19, 1);
  const auto graphs = Segment(Part::kGraphPool);
  Map(graphs, 550, 0, 6);
  const auto found = Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].pid, 7u);
  EXPECT_EQ(found[0].free_bytes, (64 + 40 + 18 + 1 + 6) * kMiB);
  EXPECT_EQ(found[0].segment_ns, 500);
  EXPECT_EQ(found[0].segment_bytes, 20 * kMiB);
  EXPECT_EQ(found[0].request_bytes, 19 * kMiB);
  EXPECT_EQ(found[0].elsewhere_bytes, 64 * kMiB);
  EXPECT_EQ(found[0].freed_since_bytes, (40 + 1) * kMiB);
  EXPECT_EQ(found[0].too_small_bytes, 18 * kMiB);
  EXPECT_EQ(found[0].largest_piece_bytes, 10 * kMiB);
  EXPECT_EQ(found[0].graph_bytes, 6 * kMiB);
}

// Of an expandable segment only some of the range is memory, and its newest piece was not there.
TEST_F(CachedTest, ExpandableSegment_OnlyWhatIsMappedIsFree) {
  const auto segment = Segment();
  Map(segment, 10, 0, 20);
  Map(segment, 20, 20, 20);
  Map(segment, 500, 100, 60);
  Block(segment, 11, tables::kNever, 10, 20);
  Block(segment, 501, tables::kNever, 100, 30);
  const auto found = Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].free_bytes, 50 * kMiB);
  EXPECT_EQ(found[0].segment_bytes, 60 * kMiB);
  EXPECT_EQ(found[0].request_bytes, 30 * kMiB);
  EXPECT_EQ(found[0].too_small_bytes, 20 * kMiB);
  EXPECT_EQ(found[0].largest_piece_bytes, 10 * kMiB);
  EXPECT_EQ(found[0].freed_since_bytes, 30 * kMiB);
  EXPECT_EQ(found[0].elsewhere_bytes, 0u);
}

// What was reused and freed between the two instants is not asked for.
TEST_F(CachedTest, GapOfThen_IsJudgedAsItWas) {
  const auto segment = Whole(10, 100);
  Block(segment, 11, 600, 0, 45);
  Block(segment, 12, 650, 55, 45);
  Block(segment, 550, 560, 45, 10);  // in the gap, while it lasted
  const auto newest = Whole(500, 20);
  Block(newest, 501, tables::kNever, 0, 20);
  Block(segment, 900, tables::kNever, 45, 4);
  const auto found = Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].freed_since_bytes, 90 * kMiB);
  EXPECT_EQ(found[0].too_small_bytes, 6 * kMiB);
  EXPECT_EQ(found[0].largest_piece_bytes, 10 * kMiB);
}

// As in a snapshot without a trace: nothing tells which segment came last.
TEST_F(CachedTest, SegmentsOfOneInstant_HaveNoNewest) {
  for (int i = 0; i < 3; ++i)
    Block(Whole(10, 64), 10, tables::kNever, 0, 10);
  EXPECT_TRUE(Find().empty());
}

TEST_F(CachedTest, FewFreeBytes_AreNotWorthAWord) {
  const auto segment = Whole(10, 500);
  Block(segment, 11, tables::kNever, 0, 460);
  EXPECT_TRUE(Find().empty());
}

}  // namespace
}  // namespace vramscope::query
