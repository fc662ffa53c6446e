// SPDX-License-Identifier: Apache-2.0
// Random trainings: whatever the names, every byte counts once, in tables and in timelines.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "ledger/training.h"

namespace vramscope::query {
namespace {

using format::NameKind;

class RandomNamesTest : public TrainingTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  uint64_t Below(uint64_t limit) { return random_() % limit; }

  void SomePlace() {
    trace_.OnThread(Below(4) == 0 ? worker_ : main_);
    switch (Below(7)) {
      case 0:
        return InMain(1 + static_cast<uint32_t>(Below(9)));
      case 1:
      case 2:
        return InLayer(Below(2) == 0 ? kFirst : kSecond, 20 + static_cast<uint32_t>(Below(3)));
      case 3:
        return InBackward();
      case 4:
        return InStep();
      case 5:
        return Load();
      default:
        return trace_.StackIs({});
    }
  }
  void SomeNode() {
    switch (Below(3)) {
      case 0:
        return trace_.NextNode(node_ += Below(3));
      case 1:
        return trace_.InNode(Below(node_ + 5));
      default:
        return trace_.NoNode();
    }
  }
  void SomeName(uint64_t address, uint64_t size) {
    const auto kind = static_cast<NameKind>(Below(5));
    trace_.Name(kind, address, "layer." + std::to_string(Below(6)),
                Below(2) * (1 + Below(2 * size)), Below(2) * kNet, Below(2) == 0 ? "exp_avg" : "");
  }
  void Do() {
    const uint64_t address = 0x1000 * (1 + Below(40));
    uint64_t& size = live_[address];
    switch (Below(12)) {
      case 0:
        Below(2) == 0 ? trace_.StepBegin(kSgd) : trace_.StepEnd(kSgd);
        break;
      case 1:
        trace_.ScopeIs(Below(2) == 0 ? "" : "a/b");
        break;
      case 2:
        Below(3) == 0 ? trace_.ModuleGone(kFirst)
                      : trace_.Module(kFirst, kNet, "first" + std::to_string(Below(2)), "Linear");
        break;
      case 3:
      case 4:
        if (size != 0)
          SomeName(address, size);
        break;
      default:
        if (size != 0) {
          trace_.Free(address, size);
          size = 0;
          break;
        }
        SomePlace();
        SomeNode();
        size = 1 + Below(5000);
        if (Below(8) == 0)
          trace_.PoolAlloc(address, size, Below(2) * (1 + Below(size)), "pool");
        else
          trace_.Alloc(address, size);
        break;
    }
  }

  std::mt19937_64 random_{GetParam()};
  std::map<uint64_t, uint64_t> live_;
  uint64_t node_ = 10;
};

TEST_P(RandomNamesTest, EveryByteCountsOnce) {
  AddNet();
  for (int i = 0; i < 400; ++i) {
    Do();
    if (i == 200)
      trace_.Mark("middle");
  }
  std::map<std::string, uint64_t> expected;
  for (const auto& [address, size] : live_)
    expected["end"] += size;
  auto analysis = Analyse(trace_);
  for (const char* when : {"peak", "mark:middle", "end"}) {
    const auto report = MakeReport(*analysis, At(when));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(BrokenInvariants(*report), "");
    const uint64_t bytes = report->devices[0].ledger_bytes;
    if (expected.contains(when)) {
      EXPECT_EQ(bytes, expected[when]);
    }
    uint64_t of_categories = 0;
    for (const CategoryEntry& entry : report->categories)
      of_categories += entry.bytes;
    EXPECT_EQ(of_categories, bytes);
    EXPECT_EQ(report->block_bytes, bytes);
    EXPECT_LE(report->block_bytes_with_category, bytes);
    EXPECT_LE(report->block_bytes_with_place, bytes);
    for (const char* by : {"category", "module", "parameter", "phase", "iteration", "tag", "line",
                           "python", "owner"}) {
      ReportQuery query = At(when);
      query.by = {*ParseDimension(by)};
      uint64_t sum = 0;
      for (const auto& [name, of_row] : RowBytes(*MakeReport(*analysis, query)))
        sum += of_row;
      EXPECT_EQ(sum, bytes) << when << " by " << by;
    }
  }
  // The timeline's highest bucket has the categories that the report has at the peak.
  const Report peak = *MakeReport(*analysis, At("peak"));
  const auto timelines = MakeTimelines(*analysis, 100'000);
  const Timeline& timeline = timelines->front();
  uint64_t highest = 0;
  std::map<std::string, uint64_t> bands;
  for (size_t bucket = 0; bucket < timeline.time_ns.size(); ++bucket) {
    std::map<std::string, uint64_t> now;
    uint64_t total = 0;
    for (size_t band = 0; band < timeline.groups.size(); ++band) {
      total += timeline.peak[band][bucket];
      if (timeline.peak[band][bucket] != 0)
        now[timeline.groups[band]] += timeline.peak[band][bucket];
    }
    if (total > highest) {
      highest = total;
      bands = now;
    }
  }
  EXPECT_EQ(highest, peak.devices[0].ledger_bytes);
  for (const CategoryEntry& entry : peak.categories) {
    if (entry.category != "unknown") {
      EXPECT_EQ(bands[entry.category], entry.bytes) << entry.category;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomNamesTest, ::testing::Range(uint32_t{0}, uint32_t{40}));

}  // namespace
}  // namespace vramscope::query
