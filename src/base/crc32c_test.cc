// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <gtest/gtest.h>

namespace vramscope::base {
namespace {

TEST(Crc32c, MatchesTheCheckValueOfTheStandard) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
}

TEST(Crc32c, ContinuesWhereItStopped) {
  EXPECT_EQ(Crc32c("6789", 4, Crc32c("12345", 5)), Crc32c("123456789", 9));
}

}  // namespace
}  // namespace vramscope::base
