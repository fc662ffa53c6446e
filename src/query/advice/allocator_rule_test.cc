// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "query/advice/advice.h"
#include "query/allocator/allocator_settings.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;

// PyTorch's allocator on a GPU: ten small requests, later four large ones that do not fit into what
// is free of the small ones.
class AllocatorRuleTest : public ::testing::Test {
 protected:
  AllocatorRuleTest() {
    const auto process = builder_.Process(100, 1000);
    gpu_ = builder_.Account(process, builder_.Device(tables::DeviceKind::kGpu, 0));
    auto site = builder_.SiteOf(gpu_, Part::kAllocated, Category::kTemporary);
    site.allocator = builder_.Text("PyTorch");
    blocks_ = builder_.Site(site);
    site = builder_.SiteOf(gpu_);
    site.backing = 1;
    backing_ = builder_.Site(site);
    free_ = builder_.Site(builder_.SiteOf(gpu_, Part::kCached, Category::kCached));
    for (int64_t i = 0; i < 10; ++i)
      Take(10 + 2 * i, 100 + i, 12 * kMebibyte);
    for (int64_t i = 0; i < 4; ++i)
      Take(200 + 2 * i, 900, 30 * kMebibyte);
  }

  // A request that gets a segment of its own.
  void Take(int64_t begin_ns, int64_t end_ns, uint64_t bytes) {
    const auto segment = builder_.Segment(free_, Part::kFragmentation);
    builder_.tables.segments[segment.value].address = next_;
    builder_.tables.segments[segment.value].size_bytes = bytes;
    builder_.Row(backing_, begin_ns, tables::kNever, bytes, segment);
    builder_.rows.back().address = next_;
    builder_.Row(blocks_, begin_ns + 1, end_ns, bytes, segment);
    builder_.rows.back().address = next_;
    next_ += 64 * kMebibyte;
  }
  std::vector<Saving> Advice() {
    const auto recording = builder_.Make();
    auto savings = FindSavings(*recording, {});
    EXPECT_TRUE(savings.ok()) << savings.status().message();
    return savings.ok() ? std::move(savings->savings) : std::vector<Saving>();
  }

  RecordingBuilder builder_;
  tables::AccountId gpu_;
  tables::SiteId blocks_, backing_, free_;
  uint64_t next_ = 1024 * kMebibyte;
};

TEST_F(AllocatorRuleTest, TheSettingThatReservesLeast) {
  const auto savings = Advice();
  ASSERT_EQ(savings.size(), 1u);
  EXPECT_EQ(savings[0].rule, "allocator");
  EXPECT_EQ(savings[0].lowers, "reserved");
  EXPECT_EQ(savings[0].change, "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  EXPECT_EQ(savings[0].saves_bytes, 120 * kMebibyte);
  EXPECT_EQ(savings[0].peak_bytes, 120 * kMebibyte);
}

TEST_F(AllocatorRuleTest, ASettingThatIsRecordedIsNamed) {
  builder_.tables.notes.push_back(
      {builder_.Text("PYTORCH_CUDA_ALLOC_CONF"), builder_.Text("max_split_size_mb:512")});
  const auto savings = Advice();
  ASSERT_EQ(savings.size(), 1u);
  EXPECT_EQ(savings[0].change,
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in place of "
            "max_split_size_mb:512");
}

TEST_F(AllocatorRuleTest, NotWhereTheModelDiffers) {
  builder_.Row(backing_, 300, tables::kNever, 2 * kMebibyte, tables::SegmentId{1});
  EXPECT_TRUE(Advice().empty());
}

TEST_F(AllocatorRuleTest, NotWhereMemorySleeps) {
  auto site = builder_.tables.sites[blocks_.value];
  site.unbacked = 1;
  builder_.Site(site);
  EXPECT_TRUE(Advice().empty());
}

TEST_F(AllocatorRuleTest, NotWhereAPoolOfItsOwnGivesTheMemory) {
  tables::FrameRow frame;
  frame.image = builder_.Text("/x/torch_memory_saver_hook_mode_preload.abi3.so");
  builder_.tables.frames.push_back(frame);
  EXPECT_TRUE(Advice().empty());
}

TEST_F(AllocatorRuleTest, NotWhereOtherProcessesShareTheMemory) {
  tables::SharedRow shared;
  shared.account = gpu_;
  builder_.tables.shared.push_back(shared);
  EXPECT_TRUE(Advice().empty());
}

TEST_F(AllocatorRuleTest, NotWhereHostMemoryIsInPlaceOfTheDevices) {
  auto site = builder_.tables.sites[blocks_.value];
  site.stands_for = builder_.tables.accounts[gpu_.value].device;
  builder_.Site(site);
  EXPECT_TRUE(Advice().empty());
}

}  // namespace
}  // namespace vramscope::query
