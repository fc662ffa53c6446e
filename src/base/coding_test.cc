// SPDX-License-Identifier: Apache-2.0

#include "base/coding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace vramscope::base {
namespace {

TEST(Varint, RoundTripsTheEdges) {
  for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{127}, uint64_t{128}, uint64_t{1} << 35,
                         std::numeric_limits<uint64_t>::max()}) {
    uint8_t buffer[kMaxVarintBytes + 8];
    uint8_t* const end = PutVarint(buffer, value);
    uint64_t back = 0;
    EXPECT_EQ(GetVarint(buffer, end, &back), end);
    EXPECT_EQ(back, value);
    // With more bytes after it, whatever they are.
    back = ~value;
    std::fill(end, std::end(buffer), uint8_t{0xff});
    EXPECT_EQ(GetVarint(buffer, end, std::end(buffer), &back), end);
    EXPECT_EQ(back, value);
  }
}

TEST(Varint, RefusesTruncatedAndOverlongInput) {
  uint64_t value = 0;
  const uint8_t truncated[] = {0x80, 0x80};
  EXPECT_EQ(GetVarint(truncated, truncated + 2, &value), nullptr);
  const uint8_t more_behind[] = {0x80, 0x80, 1, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(GetVarint(more_behind, more_behind + 2, std::end(more_behind), &value), nullptr);
  const uint8_t overlong[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
  EXPECT_EQ(GetVarint(overlong, overlong + 10, &value), nullptr);
  EXPECT_EQ(GetVarint(overlong, overlong + 10, overlong + 10, &value), nullptr);
}

TEST(Varint, ZigZagKeepsSmallNegativesSmall) {
  EXPECT_EQ(ZigZag(-1), 1u);
  EXPECT_EQ(ZigZag(1), 2u);
  for (int64_t value : {int64_t{0}, int64_t{-5}, std::numeric_limits<int64_t>::min(),
                        std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(UnZigZag(ZigZag(value)), value);
  }
}

TEST(Crc32c, MatchesTheCheckValueOfTheStandard) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
}

TEST(Crc32c, ContinuesWhereItStopped) {
  EXPECT_EQ(Crc32c("6789", 4, Crc32c("12345", 5)), Crc32c("123456789", 9));
}

}  // namespace

}  // namespace vramscope::base
