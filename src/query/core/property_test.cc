// SPDX-License-Identifier: Apache-2.0
// What is live at an instant by three ways: row by row as recording.h says it, frame by frame
// through zones, and by following all changes from the begin.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "query/core/live_set.h"
#include "query/core/peaks.h"
#include "query/core/sweep.h"
#include "query/dimensions/report.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using format::Part;
using Key = std::tuple<uint32_t, Part, format::Category>;  // account, part, category
using Sums = std::map<Key, int64_t>;

Key KeyOf(const tables::SiteRow& site) {
  return {site.account.value, site.part, site.category};
}

void DropEmpty(Sums& sums) {
  std::erase_if(sums, [](const auto& entry) { return entry.second == 0; });
}

// The ledger in the words of recording.h, by account, part and category; `unbacked`: what has no
// device memory instead.
Sums BruteForce(const RecordingBuilder& builder, int64_t time_ns, bool unbacked = false) {
  const tables::Tables& tables = builder.tables;
  Sums sums;
  std::vector<int64_t> held(tables.segments.size());
  std::vector<int64_t> used(tables.segments.size());
  std::vector<int64_t> children(tables.segments.size());
  std::set<uint32_t> checkpointed;
  for (const tables::CheckpointRow& row : tables.checkpointed) {
    if (row.begin_ns <= time_ns && time_ns < row.end_ns)
      checkpointed.insert(row.account.value);
  }
  const auto add = [&](const tables::SiteRow& site, Part part, format::Category category,
                       int64_t bytes) {
    if (!checkpointed.contains(site.account.value))
      sums[{site.account.value, part, category}] += bytes;
  };
  for (const tables::AllocationRow& row : builder.rows) {
    if (row.begin_ns > time_ns || time_ns >= row.end_ns)
      continue;
    const tables::SiteRow& site = tables.sites[row.site.value];
    if ((site.unbacked != 0) != unbacked)
      continue;
    const auto bytes = static_cast<int64_t>(row.bytes);
    const auto rounding = static_cast<int64_t>(row.rounding_bytes);
    add(site, Part::kRounding, format::Category::kRounding, rounding);
    if (site.backing != 0) {
      held[row.segment.value] += bytes - rounding;
      continue;
    }
    used[row.segment.value] += bytes;
    ++children[row.segment.value];
    add(site, site.part, site.category, bytes - rounding);
  }
  if (unbacked) {
    DropEmpty(sums);
    return sums;
  }
  std::vector<int64_t> counters(tables.counters.size());
  for (const tables::StepRow& step : tables.steps) {
    if (step.time_ns <= time_ns)
      counters[step.counter.value] += step.bytes;
  }
  for (size_t i = 1; i < counters.size(); ++i) {
    const tables::CounterRow& counter = tables.counters[i];
    const tables::SiteRow& site = tables.sites[counter.site.value];
    if (counter.segment.value != 0)
      held[counter.segment.value] += counters[i];
    else
      add(site, site.part, site.category, std::max<int64_t>(0, counters[i]));
  }
  for (size_t i = 1; i < held.size(); ++i) {
    const tables::SiteRow& site = tables.sites[tables.segments[i].site.value];
    const auto part = children[i] == 0 ? site.part : tables.segments[i].part_in_use;
    add(site, part, format::PartCategory(part), std::max<int64_t>(0, held[i] - used[i]));
  }
  DropEmpty(sums);
  return sums;
}

Sums FromLiveSet(const tables::Recording& recording,
                 int64_t time_ns,
                 const RowKey& key = {},
                 bool unbacked = false) {
  const auto live = ReadLiveSet(recording, AllAt(recording.tables(), time_ns), key);
  EXPECT_TRUE(live.ok());
  Sums sums;
  (unbacked ? ForEachUnbackedLeaf : ForEachLeaf)(recording, *live, [&](const Leaf& leaf) {
    sums[KeyOf(leaf.site)] += static_cast<int64_t>(leaf.bytes);
  });
  DropEmpty(sums);
  return sums;
}

// Keeps the sums at the instants it is asked for.
class SumsAt {
 public:
  SumsAt(const Cells& cells, std::vector<int64_t> times)
      : cells_(cells), times_(std::move(times)), bytes_(cells.all().size()) {
    std::sort(times_.begin(), times_.end());
  }
  void OnMove(uint32_t cell, int64_t bytes) { bytes_[cell] += bytes; }
  void OnState(int64_t first_ns, int64_t last_ns) {
    EXPECT_LE(first_ns, last_ns);
    EXPECT_TRUE(last_ns_ == 0 || first_ns == last_ns_ + 1) << first_ns;
    last_ns_ = last_ns;
    for (; next_ < times_.size() && times_[next_] <= last_ns; ++next_) {
      Sums sums;
      if (times_[next_] < first_ns)
        continue;
      for (size_t i = 0; i < bytes_.size(); ++i) {
        const Cell& cell = cells_.all()[i];
        if (cell.unbacked_of.value != 0)
          continue;
        sums[{cell.account.value, cell.part, cell.category}] += bytes_[i];
      }
      DropEmpty(sums);
      found[times_[next_]] = std::move(sums);
    }
  }
  std::map<int64_t, Sums> found;

 private:
  const Cells& cells_;
  std::vector<int64_t> times_;
  size_t next_ = 0;
  int64_t last_ns_ = 0;
  std::vector<int64_t> bytes_;
};

// Sees transfers between cells as one call, like the observers of reports.
class SumsByTransfers : public SumsAt {
 public:
  using SumsAt::SumsAt;
  void OnTransfer(uint32_t from, uint32_t to, int64_t bytes) {
    ++transfers;
    OnMove(from, -bytes);
    OnMove(to, bytes);
  }
  size_t transfers = 0;
};

int64_t DeviceTotal(const tables::Tables& tables, const Sums& sums, tables::DeviceId device) {
  int64_t total = 0;
  for (const auto& [key, bytes] : sums) {
    if (tables.accounts[std::get<0>(key)].device == device)
      total += bytes;
  }
  return total;
}

class RandomRecordingTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  static constexpr int64_t kLastNs = 1'000'000;
  RandomRecordingTest()
      : builder_(RandomRecording(GetParam(), 20'000, kLastNs)), recording_(builder_.Make(512)) {
    std::mt19937_64 random(GetParam());
    for (int i = 0; i < 40; ++i)
      times_.push_back(1 + static_cast<int64_t>(random() % kLastNs));
  }
  RecordingBuilder builder_;
  std::unique_ptr<tables::MemoryRecording> recording_;
  std::vector<int64_t> times_;
};

TEST_P(RandomRecordingTest, LiveSetIsWhatTheRowsSay) {
  for (const int64_t time_ns : times_) {
    const Sums expected = BruteForce(builder_, time_ns);
    EXPECT_EQ(FromLiveSet(*recording_, time_ns), expected) << time_ns;
    const RowKey by_size = [](const tables::AllocationRow& row) { return row.bytes / 100; };
    EXPECT_EQ(FromLiveSet(*recording_, time_ns, by_size), expected) << time_ns;
    const Sums unbacked = BruteForce(builder_, time_ns, true);
    EXPECT_EQ(FromLiveSet(*recording_, time_ns, {}, true), unbacked) << time_ns;
    EXPECT_EQ(FromLiveSet(*recording_, time_ns, by_size, true), unbacked) << time_ns;
  }
}

TEST_P(RandomRecordingTest, SweepComesToTheSameSums) {
  const Cells cells(*recording_);
  size_t transfers = 0;
  for (const TimeSpan span : {TimeSpan{}, TimeSpan{kLastNs / 3 - 5, kLastNs * 2 / 3}}) {
    SumsAt observer(cells, times_);
    ASSERT_TRUE(Sweep(*recording_, cells, span, &observer).ok());
    SumsByTransfers transferring(cells, times_);
    ASSERT_TRUE(Sweep(*recording_, cells, span, &transferring).ok());
    transfers += transferring.transfers;
    EXPECT_EQ(transferring.found, observer.found);
    size_t checked = 0;
    for (const int64_t time_ns : times_) {
      if (time_ns <= span.from_ns || time_ns > span.to_ns)
        continue;
      ++checked;
      EXPECT_EQ(observer.found[time_ns], BruteForce(builder_, time_ns)) << time_ns;
    }
    EXPECT_GT(checked, 5u);
  }
  // While no account is checkpointed.
  EXPECT_GT(transfers, 1000u);
}

// More changes than a window holds.
TEST(SweepTest, GoesOnFromWindowToWindow) {
  const RecordingBuilder builder = RandomRecording(7, 200'000, 10'000'000);
  RecordingBuilder copy = builder;
  const auto recording = copy.Make(2000);
  const Cells cells(*recording);
  const std::vector<int64_t> times = {1, 2'500'000, 5'000'001, 7'777'777, 9'999'999};
  SumsAt observer(cells, times);
  ASSERT_TRUE(Sweep(*recording, cells, {}, &observer).ok());
  for (const int64_t time_ns : times)
    EXPECT_EQ(observer.found[time_ns], BruteForce(builder, time_ns)) << time_ns;
}

TEST_P(RandomRecordingTest, PeaksAreTheHighestInstants) {
  const tables::Tables& tables = builder_.tables;
  const auto peaks = FindPeaks(*recording_);
  ASSERT_TRUE(peaks.ok());
  ASSERT_EQ(peaks->size(), 3u);
  for (const tables::PeakRow& peak : *peaks) {
    EXPECT_EQ(DeviceTotal(tables, BruteForce(builder_, peak.time_ns), peak.device),
              static_cast<int64_t>(peak.bytes));
    for (const int64_t time_ns : times_) {
      EXPECT_LE(DeviceTotal(tables, BruteForce(builder_, time_ns), peak.device),
                static_cast<int64_t>(peak.bytes));
    }
  }
}

TEST_P(RandomRecordingTest, UnbackedPeaksAreTheHighestInstants) {
  const tables::Tables& tables = builder_.tables;
  const auto peaks = FindUnbackedPeaks(*recording_);
  ASSERT_TRUE(peaks.ok());
  ASSERT_EQ(peaks->size(), 3u);
  for (const tables::PeakRow& peak : *peaks) {
    EXPECT_EQ(DeviceTotal(tables, BruteForce(builder_, peak.time_ns, true), peak.device),
              static_cast<int64_t>(peak.bytes));
    for (const int64_t time_ns : times_) {
      EXPECT_LE(DeviceTotal(tables, BruteForce(builder_, time_ns, true), peak.device),
                static_cast<int64_t>(peak.bytes));
    }
  }
}

TEST_P(RandomRecordingTest, EveryGroupingSumsToTheDevice) {
  for (size_t i = 0; i < 6; ++i) {
    const Sums expected = BruteForce(builder_, times_[i]);
    const Sums unbacked = BruteForce(builder_, times_[i], true);
    for (size_t d = 0; d <= kDimensionCount; ++d) {
      ReportQuery query;
      query.at.kind = Instant::Kind::kMonotonic;
      query.at.time_ns = times_[i];
      if (d < kDimensionCount)
        query.by = {static_cast<Dimension>(d), Dimension::kSizeClass};
      const auto report = MakeReport(*recording_, query);
      ASSERT_TRUE(report.ok()) << report.status().message();
      for (const DeviceReport& device : report->devices) {
        uint64_t sum = 0;
        for (const ReportRow& row : report->rows)
          sum += row.device == device.device ? row.bytes : 0;
        EXPECT_EQ(sum, device.ledger_bytes);
        EXPECT_EQ(DeviceTotal(builder_.tables, expected, device.device), static_cast<int64_t>(sum));
        uint64_t asleep = 0;
        for (const ReportRow& row : report->unbacked)
          asleep += row.device == device.device ? row.bytes : 0;
        EXPECT_EQ(asleep, device.unbacked_bytes);
        EXPECT_EQ(DeviceTotal(builder_.tables, unbacked, device.device),
                  static_cast<int64_t>(asleep));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRecordingTest, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace vramscope::query
