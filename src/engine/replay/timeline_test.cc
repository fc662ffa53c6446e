// SPDX-License-Identifier: Apache-2.0
#include "engine/replay/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace vramscope::engine {
namespace {

using Height = TimelineRecorder::Height;

// One group, steps at given times.
class Recorder {
 public:
  Recorder() { timeline_.Start(0); }
  void Step(int64_t time_ns, int64_t bytes) {
    timeline_.Before(time_ns, bytes < groups_[0], groups_, {groups_[0], groups_[0]});
    groups_[0] = bytes;
    timeline_.After({bytes, bytes});
  }
  std::vector<TimelineRecorder::Bucket> Finish(int64_t time_ns, size_t buckets) {
    timeline_.Finish(time_ns, groups_, {groups_[0], groups_[0]});
    return timeline_.Read(buckets);
  }
  TimelineRecorder timeline_;
  std::vector<int64_t> groups_{0};
};

TEST(TimelineTest, KeepsTheHighestOfEachBucketOverManyDoublings) {
  Recorder recorder;
  std::mt19937 random(1);
  std::vector<std::pair<int64_t, int64_t>> steps;
  int64_t time_ns = 0;
  for (int i = 0; i < 200'000; ++i) {
    time_ns += 1 + static_cast<int64_t>(random() % 100'000);
    steps.emplace_back(time_ns, static_cast<int64_t>(random() % 1000));
    recorder.Step(steps.back().first, steps.back().second);
  }
  const auto buckets = recorder.Finish(time_ns, TimelineRecorder::kBuckets);
  ASSERT_GE(buckets.size(), TimelineRecorder::kBuckets / 2);
  for (size_t b = 0; b < buckets.size(); ++b) {
    const int64_t end = b + 1 < buckets.size() ? buckets[b + 1].begin_ns : INT64_MAX;
    int64_t highest = 0;
    auto step =
        std::lower_bound(steps.begin(), steps.end(), std::pair{buckets[b].begin_ns, INT64_MIN});
    if (step != steps.begin())
      highest = std::prev(step)->second;  // what stood when the bucket began
    for (; step != steps.end() && step->first < end; ++step)
      highest = std::max(highest, step->second);
    ASSERT_EQ(buckets[b].groups[0], highest) << b;
  }
}

TEST(TimelineTest, QuietTimeShowsTheStateAsItStands) {
  Recorder recorder;
  recorder.Step(10, 500);
  recorder.Step(20, 40);
  const auto buckets = recorder.Finish(1'000'000'000, 10);
  ASSERT_LE(buckets.size(), 10u);
  EXPECT_EQ(buckets.front().groups[0], 500);
  for (size_t b = 1; b < buckets.size(); ++b)
    EXPECT_EQ(buckets[b].groups[0], 40);
}

TEST(TimelineTest, NewGroupsMayAppearLate) {
  TimelineRecorder timeline;
  timeline.Start(0);
  std::vector<int64_t> groups{5};
  timeline.Before(1, true, groups, {5, 5});
  groups.resize(40, 1);
  timeline.After({44, 44});
  timeline.Finish(5'000'000, groups, {44, 44});
  timeline.Correct(39, 100, 2'000'000, 3'000'000, TimelineRecorder::Reach::kTouched);
  const auto buckets = timeline.Read(8);
  EXPECT_EQ(buckets[0].groups[39], 1);
  const auto highest =
      std::max_element(buckets.begin(), buckets.end(),
                       [](const auto& a, const auto& b) { return a.groups[39] < b.groups[39]; });
  EXPECT_EQ(highest->groups[39], 101);
  EXPECT_EQ(highest->groups[0], 5);
}

}  // namespace
}  // namespace vramscope::engine
