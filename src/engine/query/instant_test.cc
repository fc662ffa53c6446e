// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "engine/query/report.h"

namespace vramscope::engine {
namespace {

TEST(ParseInstantTest, KnowsEveryForm) {
  EXPECT_EQ(ParseInstant("peak")->kind, Instant::Kind::kPeak);
  EXPECT_EQ(ParseInstant("end")->kind, Instant::Kind::kEnd);
  EXPECT_EQ(ParseInstant("1.5")->kind, Instant::Kind::kSeconds);
  EXPECT_EQ(ParseInstant("1.5")->time_ns, 1'500'000'000);
  EXPECT_EQ(ParseInstant("@12345678901234")->time_ns, 12345678901234);
  EXPECT_EQ(ParseInstant("iter:7")->iteration, 7);
  EXPECT_EQ(ParseInstant("mark:after load")->mark, "after load");
}

TEST(ParseInstantTest, RefusesTheRestWithTheForms) {
  for (const char* text :
       {"", "Peak", "1.5s", "@", "@-1", "-3", "iter:", "iter:x", "mark:", "nan", "inf", "1e300"}) {
    const auto instant = ParseInstant(text);
    ASSERT_FALSE(instant.ok()) << text;
    EXPECT_NE(instant.status().message().find("mark:NAME"), std::string::npos);
  }
}

TEST(ParseDimensionTest, ListsTheNames) {
  EXPECT_EQ(*ParseDimension("size_class"), Dimension::kSizeClass);
  EXPECT_STREQ(DimensionName(Dimension::kLine), "line");
  const auto unknown = ParseDimension("colour");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("device, process, rank"), std::string::npos);
}

}  // namespace
}  // namespace vramscope::engine
