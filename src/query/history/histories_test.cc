// SPDX-License-Identifier: Apache-2.0
// Timelines and iterations agree with the live set at every instant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/core/parallel.h"
#include "query/core/peaks.h"
#include "query/core/sweep.h"
#include "query/dimensions/report.h"
#include "query/keywords/keywords.h"
#include "query/testing/random_recording.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kLastNs = 1'000'000;

uint64_t DeviceTotal(const tables::Recording& recording, tables::DeviceId device, int64_t at_ns) {
  const auto totals = DeviceTotals(recording, AllAt(recording.tables(), at_ns));
  EXPECT_TRUE(totals.ok());
  return (*totals)[device.value];
}

// Of one account, by category and in all.
std::vector<uint64_t> AccountTotals(const tables::Recording& recording,
                                    tables::ProcessId process,
                                    tables::DeviceId device,
                                    int64_t at_ns) {
  const auto live = ReadLiveSet(recording, AllAt(recording.tables(), at_ns));
  EXPECT_TRUE(live.ok());
  std::vector<uint64_t> totals(format::kCategoryCount + 1);
  ForEachLeaf(recording, *live, [&](const Leaf& leaf) {
    if (leaf.device != device || leaf.process != process)
      return;
    totals[tables::ToWord(leaf.site.category)] += leaf.bytes;
    totals.back() += leaf.bytes;
  });
  return totals;
}

class HistoriesTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  HistoriesTest()
      : builder_(RandomRecording(GetParam(), 20'000, kLastNs)), recording_(builder_.Make(512)) {
    std::mt19937_64 random(GetParam());
    for (int i = 0; i < 50; ++i)
      times_.push_back(1 + static_cast<int64_t>(random() % kLastNs));
  }
  RecordingBuilder builder_;
  std::unique_ptr<tables::MemoryRecording> recording_;
  std::vector<int64_t> times_;
};

TEST_P(HistoriesTest, BucketsShowTheirHighestInstant) {
  const auto timelines = MakeTimelines(*recording_, 100);
  ASSERT_TRUE(timelines.ok());
  ASSERT_EQ(timelines->size(), 3u);
  for (const Timeline& timeline : *timelines) {
    const size_t buckets = timeline.time_ns.size();
    ASSERT_GT(buckets, 90u);
    ASSERT_LE(buckets, 100u);
    ASSERT_EQ(timeline.peak.size(), timeline.groups.size());
    std::vector<uint64_t> tops(buckets);
    for (size_t i = 0; i < buckets; ++i) {
      for (const auto& row : timeline.peak)
        tops[i] += row[i];
      EXPECT_GE(timeline.peak_ns[i], timeline.time_ns[i]);
      EXPECT_LT(timeline.peak_ns[i],
                i + 1 < buckets ? timeline.time_ns[i + 1] : timeline.time_ns[i] + 20'000);
      EXPECT_EQ(tops[i], DeviceTotal(*recording_, timeline.device, timeline.peak_ns[i])) << i;
    }
    for (const int64_t time_ns : times_) {
      const auto bucket =
          std::upper_bound(timeline.time_ns.begin(), timeline.time_ns.end(), time_ns) - 1 -
          timeline.time_ns.begin();
      EXPECT_LE(DeviceTotal(*recording_, timeline.device, time_ns),
                tops[static_cast<size_t>(bucket)]);
    }
  }
}

TEST_P(HistoriesTest, BucketsAreBounded) {
  for (const size_t buckets : {size_t{0}, kMaxBuckets + 1, SIZE_MAX}) {
    const auto timelines = MakeTimelines(*recording_, buckets);
    ASSERT_FALSE(timelines.ok()) << buckets;
    EXPECT_EQ(timelines.status().message(),
              "a timeline has 1 to 1,000,000 buckets, not " + util::FormatCount(uint64_t{buckets}));
  }
  EXPECT_TRUE(MakeTimelines(*recording_, 1).ok());
}

TEST_P(HistoriesTest, OfOneProcessBucketsShowItsOwnHighestInstant) {
  const auto all = MakeTimelinesBy(*recording_, 100, Dimension::kProcess);
  ASSERT_TRUE(all.ok());
  for (const tables::ProcessId process : {tables::ProcessId{1}, tables::ProcessId{2}}) {
    const std::string pid = std::to_string(recording_->tables().processes[process.value].pid);
    const auto own =
        MakeTimelinesOf(*recording_, 100, [&](tables::ProcessId one) { return one == process; });
    ASSERT_TRUE(own.ok());
    ASSERT_FALSE(own->empty());
    for (const Timeline& timeline : *own) {
      const auto shared = std::find_if(all->begin(), all->end(), [&](const Timeline& one) {
        return one.device == timeline.device;
      });
      ASSERT_NE(shared, all->end());
      const auto band = std::find(shared->groups.begin(), shared->groups.end(), pid);
      ASSERT_NE(band, shared->groups.end());
      const auto& theirs = shared->peak[static_cast<size_t>(band - shared->groups.begin())];
      EXPECT_TRUE(timeline.nvml.empty());
      for (size_t i = 0; i < timeline.time_ns.size(); ++i) {
        uint64_t top = 0;
        for (const auto& row : timeline.peak)
          top += row[i];
        EXPECT_GE(top, theirs[i]) << i;  // theirs is at the device's highest instant
      }
    }
  }
  const auto nobody = MakeTimelinesOf(*recording_, 100, [](tables::ProcessId) { return false; });
  ASSERT_TRUE(nobody.ok());
  EXPECT_TRUE(nobody->empty());
}

TEST_P(HistoriesTest, IterationsArePeaksWithin) {
  const auto found = MakeIterations(*recording_);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->iterations.size(), 60u);  // two processes on three devices, ten each
  EXPECT_EQ(found->source, "optimizer steps");
  for (const Iteration& iteration : found->iterations) {
    const auto at = [&](int64_t time_ns) {
      return AccountTotals(*recording_, iteration.process, iteration.device, time_ns);
    };
    EXPECT_GT(iteration.peak_ns, iteration.begin_ns);
    EXPECT_LE(iteration.peak_ns, iteration.end_ns);
    EXPECT_EQ(iteration.peak_bytes, at(iteration.peak_ns).back()) << iteration.number;
    std::vector<uint64_t> end = at(iteration.end_ns);
    EXPECT_EQ(iteration.end_bytes, end.back());
    end.pop_back();
    EXPECT_EQ(iteration.category_end, end);
    for (const int64_t time_ns : times_) {
      if (time_ns <= iteration.begin_ns || time_ns > iteration.end_ns)
        continue;
      const std::vector<uint64_t> then = at(time_ns);
      EXPECT_LE(then.back(), iteration.peak_bytes);
      for (size_t i = 0; i < format::kCategoryCount; ++i)
        EXPECT_LE(then[i], iteration.category_peak[i]);
    }
  }
}

// A device's peak of an iteration is the highest instant in it.
TEST_P(HistoriesTest, ReportOfAnIterationIsOfItsPeak) {
  for (int64_t number = 0; number < 10; number += 3) {
    ReportQuery query;
    query.at.kind = Instant::Kind::kIteration;
    query.at.iteration = number;
    const auto report = MakeReport(*recording_, query);
    ASSERT_TRUE(report.ok());
    const int64_t begin_ns = kLastNs * number / 12;
    const int64_t end_ns = kLastNs * (number + 1) / 12;
    for (const DeviceReport& device : report->devices) {
      EXPECT_GT(device.at_ns, begin_ns);
      EXPECT_LE(device.at_ns, end_ns);
      EXPECT_EQ(device.at_iteration, number);
      EXPECT_EQ(device.ledger_bytes, DeviceTotal(*recording_, device.device, device.at_ns));
      for (const int64_t time_ns : times_) {
        const bool within = time_ns > begin_ns && time_ns <= end_ns;
        EXPECT_TRUE(!within ||
                    DeviceTotal(*recording_, device.device, time_ns) <= device.ledger_bytes);
      }
    }
  }
}

// What one thread finds of each device within some stretches of time: the highest total, and when
// it was there first.
class HighestWithin {
 public:
  HighestWithin(const Cells& cells, std::vector<TimeSpan> spans)
      : cells_(cells), spans_(std::move(spans)) {
    found_.resize(spans_.size());
  }
  void OnMove(uint32_t cell, int64_t bytes) {
    const Cell& of = cells_.all()[cell];
    now_[{of.device, {}}] += bytes;
    now_[{of.device, of.account}] += bytes;
  }
  void OnState(int64_t first_ns, int64_t last_ns) {
    while (next_ < spans_.size() && spans_[next_].to_ns < first_ns)
      ++next_;
    for (size_t i = next_; i < spans_.size() && spans_[i].from_ns < last_ns; ++i) {
      for (const auto& [key, bytes] : now_) {
        const auto [found, added] = found_[i].try_emplace(key, bytes);
        if (added || bytes > found->second)
          found->second = bytes;
      }
    }
  }
  int64_t Found(size_t span, tables::DeviceId device, tables::AccountId account = {}) const {
    const auto found = found_[span].find({device, account});
    return found == found_[span].end() ? 0 : found->second;
  }

 private:
  using Key = std::pair<tables::DeviceId, tables::AccountId>;
  const Cells& cells_;
  std::vector<TimeSpan> spans_;  // in order, apart
  size_t next_ = 0;
  std::map<Key, int64_t> now_;
  std::vector<std::map<Key, int64_t>> found_;
};

TEST(PiecesTest, WhatThreadsFindInTheirPiecesOfTimeIsWhatOneFindsInAll) {
  constexpr int64_t kEndNs = 50'000'000;
  constexpr size_t kBuckets = 40;
  const auto recording = RandomRecording(11, 150'000, kEndNs).Make(4096);
  const tables::Tables& tables = recording->tables();
  if (WorkersFor(150'000) == 1)
    GTEST_SKIP() << "one processor";
  ASSERT_GT(PiecesOf(*recording, {}).size(), 1u);
  const Cells cells(*recording);

  const auto peaks = FindPeaks(*recording);
  HighestWithin all(cells, {TimeSpan{}});
  ASSERT_TRUE(Sweep(*recording, cells, {}, &all).ok());
  for (const tables::PeakRow& peak : *peaks) {
    EXPECT_EQ(static_cast<int64_t>(peak.bytes), all.Found(0, peak.device));
    EXPECT_EQ(peak.bytes, DeviceTotal(*recording, peak.device, peak.time_ns));
  }

  const auto timelines = MakeTimelines(*recording, kBuckets);
  ASSERT_TRUE(timelines.ok());
  for (const Timeline& timeline : *timelines) {
    std::vector<TimeSpan> buckets;
    for (size_t i = 0; i + 1 < timeline.time_ns.size(); ++i)
      buckets.push_back({timeline.time_ns[i] - 1, timeline.time_ns[i + 1] - 1});
    HighestWithin within(cells, buckets);
    ASSERT_TRUE(Sweep(*recording, cells, {}, &within).ok());
    for (size_t i = 0; i < buckets.size(); ++i) {
      uint64_t sum = 0;
      for (const std::vector<uint64_t>& band : timeline.peak)
        sum += band[i];
      EXPECT_EQ(static_cast<int64_t>(sum), within.Found(i, timeline.device)) << "bucket " << i;
      EXPECT_EQ(sum, DeviceTotal(*recording, timeline.device, timeline.peak_ns[i]));
    }
  }

  const auto iterations = MakeIterations(*recording);
  ASSERT_TRUE(iterations.ok());
  std::vector<TimeSpan> spans;
  for (const tables::IterationRow& row : tables.iterations) {
    if (row.process == tables.iterations[0].process)
      spans.push_back({row.begin_ns, row.end_ns});
  }
  HighestWithin within(cells, spans);
  ASSERT_TRUE(Sweep(*recording, cells, {}, &within).ok());
  ASSERT_FALSE(iterations->iterations.empty());
  for (const Iteration& iteration : iterations->iterations) {
    const auto number = static_cast<size_t>(iteration.number);
    for (uint32_t i = 1; i < tables.accounts.size(); ++i) {
      if (tables.accounts[i].process == iteration.process &&
          tables.accounts[i].device == iteration.device) {
        EXPECT_EQ(static_cast<int64_t>(iteration.peak_bytes),
                  within.Found(number, iteration.device, tables::AccountId{i}));
      }
    }
    const auto totals = [&](int64_t at_ns) {
      return AccountTotals(*recording, iteration.process, iteration.device, at_ns).back();
    };
    EXPECT_EQ(iteration.peak_bytes, totals(iteration.peak_ns));
    EXPECT_EQ(iteration.end_bytes, totals(iteration.end_ns));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, HistoriesTest, ::testing::Values(1, 2, 3));

// One process on one GPU that steps every hundred nanoseconds.
class TrainingTest : public ::testing::Test {
 protected:
  TrainingTest() {
    tables().session.end_ns = 1001;
    const auto gpu = builder_.Device(tables::DeviceKind::kGpu, 0);
    process_ = builder_.Process(7, 1000);
    account_ = builder_.Account(process_, gpu);
    allocator_ = builder_.Text("PyTorch");
    for (int64_t k = 0; k < 10; ++k)
      tables().iterations.push_back({process_, k, k * 100, k * 100 + 100});
  }
  tables::Tables& tables() { return builder_.tables; }
  tables::SiteRow Block(Category category, const std::string& parameter = "") {
    tables::SiteRow site = builder_.SiteOf(account_, Part::kAllocated, category);
    site.owner = site.allocator = allocator_;
    if (!parameter.empty())
      site.parameter = builder_.Text(parameter);
    return site;
  }
  tables::StackId Line(const std::string& file, uint32_t line) {
    tables::FrameRow frame;
    frame.file = builder_.Text(file);
    frame.line = line;
    const tables::FrameId id{RecordingBuilder::Append(tables().frames, frame)};
    return tables::StackId{RecordingBuilder::Append(tables().stacks, {tables::StackId{}, id})};
  }
  RecordingBuilder builder_;
  tables::ProcessId process_;
  tables::AccountId account_;
  tables::StringId allocator_;
};

TEST_F(TrainingTest, ParametersAreOfTheLastIterationInTheModelsOrder) {
  const auto weight = builder_.Text("b.weight");
  const auto site = [&](Category category, tables::StringId name) {
    tables::SiteRow row = Block(category);
    row.parameter = name;
    return builder_.Site(row);
  };
  builder_.Row(site(Category::kParameter, weight), 5, tables::kNever, 512, {}, 112);
  builder_.Row(builder_.Site(Block(Category::kParameter, "a.bias")), 6, tables::kNever, 64);
  const auto gradient = site(Category::kGradient, weight);
  builder_.Row(gradient, 150, 250, 4000);  // of an iteration before
  builder_.Row(gradient, 910, 950, 400);
  builder_.Row(gradient, 950, 990, 300);
  builder_.Row(site(Category::kOptimizerState, weight), 120, tables::kNever, 800);
  const auto found = MakeIterations(*builder_.Make());
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->parameters.size(), 2u);
  EXPECT_EQ(found->parameters[0].name, "b.weight");
  EXPECT_EQ(found->parameters[0].parameter, 400u);
  EXPECT_EQ(found->parameters[0].gradient, 400u);
  EXPECT_EQ(found->parameters[0].optimizer_state, 800u);
  EXPECT_EQ(found->parameters[1].name, "a.bias");
}

TEST_F(TrainingTest, WhatNvmlKnowsFromBeforeIsInNeitherAllocatedNorReserved) {
  tables::SiteRow before = builder_.SiteOf(account_, Part::kBeforeRecording);
  before.estimated = tables::Estimated::kByFreeMemory;
  builder_.Step(builder_.Counter(builder_.Site(before)), 1, 5000);
  builder_.Row(builder_.Site(Block(Category::kActivation)), 10, 50, 30);
  tables::SiteRow temporary = Block(Category::kTemporary);
  temporary.phase = format::Phase::kBackward;
  builder_.Row(builder_.Site(temporary), 60, 70, 20);
  const auto found = MakeIterations(*builder_.Make());
  ASSERT_TRUE(found.ok());
  const Iteration& first = found->iterations[0];
  EXPECT_EQ(first.peak_bytes, 5030u);
  EXPECT_EQ(first.peak_ns, 10);
  EXPECT_EQ(first.peak_allocated, 30u);
  EXPECT_EQ(first.peak_allocated_ns, 10);
  EXPECT_EQ(first.peak_reserved, 0u);  // of no segment
  EXPECT_EQ(first.before_recording_peak, 5000u);
  EXPECT_EQ(first.backward_temporary_peak, 20u);
  // The same height again is the next one's own, at its first instant.
  EXPECT_EQ(found->iterations[1].peak_bytes, 5000u);
  EXPECT_EQ(found->iterations[1].peak_ns, 101);
  EXPECT_EQ(found->iterations[1].peak_allocated_ns, 101);
}

TEST_F(TrainingTest, WithoutIterationsThatIsSaid) {
  tables().iterations.clear();
  const auto found = MakeIterations(*builder_.Make());
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.status().message(), HasSubstr("no iterations"));
}

TEST_F(TrainingTest, KeywordsLookAtClasses) {
  tables::SiteRow embedding = Block(Category::kParameter);
  embedding.module = builder_.Text("0");
  embedding.module_class = builder_.Text("Embedding");
  builder_.Row(builder_.Site(embedding), 10, tables::kNever, 300);
  builder_.Row(builder_.Site(Block(Category::kUnknown)), 10, tables::kNever, 50);
  KeywordQuery query;
  query.dictionaries = {{.name = "layers",
                         .title = "Layer",
                         .rules = {{.category = "embeddings",
                                    .group = "",
                                    .keywords = {"embedding"},
                                    .over = {Dimension::kModule, Dimension::kClass}}}}};
  const auto report = MakeKeywordReport(*builder_.Make(), query);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->tables.size(), 1u);
  EXPECT_EQ(report->tables[0].categories[0].bytes, 300u);
  EXPECT_EQ(report->tables[0].others.bytes, 50u);
  ASSERT_EQ(report->unnamed.size(), 1u);
  EXPECT_EQ(report->unnamed[0].bytes, 50u);
}

}  // namespace
}  // namespace vramscope::query
