// SPDX-License-Identifier: Apache-2.0
#include "output/text/text_table.h"

#include <gtest/gtest.h>

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
}  // namespace vramscope::output
