// SPDX-License-Identifier: Apache-2.0
#include "output/text/text_table.h"

#include <gtest/gtest.h>

#include <random>

namespace vramscope::output {
namespace {

const Style kNarrow = {.columns = 24};

TEST(TextTableTest, List_LongTextAndRest_AreCutAndPlaced) {
  TextLines lines(kNarrow);
  {
    TextTable table(&lines, {{.title = "MiB", .width = 6},
                             {.title = "Top lines", .fit = Fit::kCutEnd, .gap = 2}});
    table.AddTitles();
    table.AddRow({{"512.0"}, {"model.py:42 in forward"}});
    table.AddBelow("< train.py:10 in main");
    table.AddRest({{"1.0"}, {"(7 more)"}});
  }
  EXPECT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines.Take(),
            "   MiB  Top lines\n"
            " 512.0  model.py:42 in..\n"
            "        < train.py:10 ..\n"
            "   1.0  (7 more)\n");
}

TEST(TextTableTest, Names_WidestCell_DecidesTheWidth) {
  TextLines lines(kNarrow);
  {
    TextTable table(
        &lines,
        {{.title = "by layer and more", .width = 4, .most = 8, .fit = Fit::kCutStart, .gap = 2},
         {.title = "MiB", .width = 6}});
    table.AddTitles();
    table.AddRow({{"a.b"}, {"1.0"}});
    table.AddRow({{"encoder.layer.0"}, {"22.0"}});
    table.AddRest({{"(12 more)"}, {"3.0"}});
  }
  EXPECT_EQ(lines.Take(),
            "  ..and more MiB\n"
            "  a.b        1.0\n"
            "  ..ayer.0  22.0\n"
            "  (12 more)  3.0\n");
}

}  // namespace

namespace {

using Shown = std::vector<size_t>;

TEST(Screen, WhatFitsIsWhole) {
  EXPECT_EQ(ShareLines(40, {{4, 9}, {3, 10}, {1, 3, 1, 2}}), (Shown{9, 10, 3}));
}

TEST(Screen, NobodyLooksAtAScreen) {
  EXPECT_EQ(ShareLines(0, {{4, 900}, {1, 3}}), (Shown{900, 3}));
}

TEST(Screen, SharesByWeight) {
  // 12 and 6 lines, including two each for the head and the empty line.
  EXPECT_EQ(ShareLines(18, {{4, 100}, {2, 100}}), (Shown{10, 4}));
}

TEST(Screen, WhatOneDoesNotNeedTheOthersHave) {
  EXPECT_EQ(ShareLines(18, {{4, 3}, {2, 100}}), (Shown{3, 11}));
}

TEST(Screen, TheLightestIsLeftOutFirst) {
  // Shares are 8, 4 and 2 lines: the last has no room for an entry.
  EXPECT_EQ(ShareLines(14, {{4, 100, 3}, {2, 100, 2}, {1, 100, 1}}), (Shown{8, 2, 0}));
  // Of equal weight the later.
  EXPECT_EQ(ShareLines(7, {{1, 100, 3}, {1, 100, 3}}), (Shown{5, 0}));
}

TEST(Screen, SectionsWithoutEntriesTakeNothing) {
  EXPECT_EQ(ShareLines(10, {{100, 0}, {1, 100}}), (Shown{0, 8}));
}

TEST(Screen, NeverMoreThanTheScreen) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Section> sections(1 + random() % 12);
    for (Section& section : sections) {
      section.weight = 0.5 + random() % 8;
      section.entries = random() % 30;
      section.fewest = 1 + random() % 4;
      section.lines_per_entry = 1 + random() % 2;
      section.all = random() % 2 * random() % 40;
    }
    const size_t lines = 1 + random() % 60;
    const Shown shown = ShareLines(lines, sections);
    size_t taken = 0;
    for (size_t i = 0; i < sections.size(); ++i) {
      ASSERT_LE(shown[i], sections[i].entries);
      if (shown[i] == 0)
        continue;
      ASSERT_GE(shown[i], std::min(sections[i].fewest, sections[i].entries));
      taken += shown[i] * sections[i].lines_per_entry + kSectionHeadLines;
      taken += shown[i] < sections[i].all ? 1U : 0U;
    }
    ASSERT_LE(taken, lines);
  }
}

}  // namespace

}  // namespace vramscope::output
