// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "import/testing/imported.h"

namespace vramscope::imports {
namespace {

using ::testing::ElementsAre;
using testing::Imported;
using testing::ImportText;
using ::testing::Pair;

// Category and bytes at each step of it.
std::vector<std::pair<std::string, int64_t>> StepsOf(const Imported& log) {
  std::vector<std::pair<std::string, int64_t>> steps;
  for (const tables::StepRow& step : log.tables.steps) {
    const tables::SiteRow& site =
        log.tables.sites[log.tables.counters[step.counter.value].site.value];
    steps.emplace_back(format::CategoryName(site.category), step.bytes);
  }
  return steps;
}

TEST(TorchTimeline, CategoriesAreCounters) {
  const Imported log = ImportText(
      "[[1000, 1000, 1007], [[0, 4096, 0, 0, 0, 0, 0, 0, 0], [0, 4096, 64, 0, 0, 512, 0, 0, 0], "
      "[0, 4096, 64, 0, 0, 0, 128, 0, 8]]]");
  ASSERT_EQ(log.error, "");
  EXPECT_EQ(log.format, "torch-timeline");
  EXPECT_THAT(StepsOf(log), ElementsAre(Pair("parameter", 4096), Pair("optimizer state", 64),
                                        Pair("activation", 512), Pair("activation", -512),
                                        Pair("gradient", 128), Pair("unknown", 8)));
  EXPECT_EQ(log.tables.steps.front().time_ns, 1'000'000);
  EXPECT_EQ(log.tables.steps.back().time_ns, 1'007'000);
  EXPECT_TRUE(log.Losses().empty());
}

TEST(TorchTimeline, RawEventsAreChangesOfCategories) {
  const Imported log = ImportText(
      "[[-1, 0, 4096, 0], [1001000, 1, 512, 4], [1002000, 2, -512, 4], [1002000, 2, 512, 5], "
      "[1007000, 3, -512, 5], [1007000, 3, 1, 8], [1008000, 3]]");
  ASSERT_EQ(log.error, "");
  EXPECT_EQ(log.format, "torch-timeline");
  EXPECT_THAT(StepsOf(log),
              ElementsAre(Pair("parameter", 4096), Pair("activation", 512),
                          Pair("activation", -512), Pair("gradient", 512), Pair("gradient", -512)));
  EXPECT_EQ(log.tables.steps.front().time_ns, 1'001'000);
  EXPECT_EQ(log.tables.steps.back().time_ns, 1'007'000);
  EXPECT_THAT(log.Losses(), ElementsAre(Pair("events without bytes or category", 2u)));
  // Only memory from before.
  EXPECT_THAT(StepsOf(ImportText("[[-1, 0, 4096, 0]]")), ElementsAre(Pair("parameter", 4096)));
}

TEST(TorchTimeline, WhatIsCutOffIsALoss) {
  const Imported log =
      ImportText("[[1, 2, 3], [[0, 1, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, -5, 0, 0, 0], [0, 2");
  ASSERT_EQ(log.error, "");
  EXPECT_THAT(log.Losses(), ElementsAre(Pair("bytes below zero, shown as none", 1u),
                                        Pair("instants without bytes", 1u),
                                        Pair("timelines that are cut off at the end", 1u)));
}

}  // namespace
}  // namespace vramscope::imports
