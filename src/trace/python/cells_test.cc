// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <string>

#include "format/layout.h"
#include "trace/python/lines.h"

namespace vramscope::trace {
namespace {

std::string File(const std::string& entries) {
  return format::kCellsStart + entries;
}

TEST(CellsTest, EachHasItsNumberAndItsText) {
  Cells cells;
  cells.Parse(File("3 11 /tmp/ipykernel_1/22.py\nx = 1\ny = 2\n4 0 <ipython-input-4-ab>\n\n"));
  const Cells::Cell* const third = cells.Find("/tmp/ipykernel_1/22.py");
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(third->name(), "In[3]");
  EXPECT_EQ(third->text, "x = 1\ny = 2");
  ASSERT_NE(cells.Find("<ipython-input-4-ab>"), nullptr);
  EXPECT_EQ(cells.Find("train.py"), nullptr);
}

TEST(CellsTest, TheLaterOfTwoCounts) {
  Cells cells;
  cells.Parse(File("3 1 a\nx\n7 1 a\nx\n"));
  EXPECT_EQ(cells.Find("a")->number, 7u);
}

TEST(CellsTest, WhatIsDamagedEndsIt) {
  for (const char* text :
       {"", "3", "3 ", "x 1 a\nx\n", "3 1 a", "3 1 \nx\n", "3 99999999999999999999 a\nx\n",
        "3 5 a\nx\n", "3 18446744073709551615 a\nx\n", "-3 1 a\nx\n", "3 1 a\nxy\n"}) {
    Cells cells;
    cells.Parse(File(text));
    EXPECT_TRUE(cells.empty()) << text;
    cells.Parse("1 1 a\nx\n");  // another file
    EXPECT_TRUE(cells.empty());
    cells.Parse(File("1 1 b\nx\n"));
    cells.Parse(File(text));
    EXPECT_NE(cells.Find("b"), nullptr) << text;
  }
}

}  // namespace

}  // namespace vramscope::trace
