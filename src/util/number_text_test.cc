// SPDX-License-Identifier: Apache-2.0
#include "util/number_text.h"

#include <gtest/gtest.h>

namespace vramscope::util {
namespace {

TEST(NumberText, IsAllOfTheText) {
  EXPECT_EQ(WholeNumber<uint32_t>("4711"), 4711u);
  EXPECT_EQ(WholeNumber<int64_t>("-1"), -1);
  EXPECT_EQ(WholeNumber<double>("0.5"), 0.5);
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "1.5", "4294967296", "0x10"})
    EXPECT_EQ(WholeNumber<uint32_t>(text), std::nullopt) << text;
}

TEST(NumberText, WritesAddresses) {
  EXPECT_EQ(HexText(0), "0x0");
  EXPECT_EQ(HexText(0x7f00), "0x7f00");
  EXPECT_EQ(HexText(UINT64_MAX), "0xffffffffffffffff");
}

}  // namespace
}  // namespace vramscope::util
