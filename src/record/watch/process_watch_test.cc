// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "record/watch/watches.h"

namespace vramscope::cli {
namespace {

TEST(ParseFileUser, TakesTheUserOfFilesAndTheRightToWriteAll) {
  FileUser user;
  ASSERT_TRUE(ParseFileUser(
      "Name:\tUid:\nUid:\t0\t0\t0\t1000\nGid:\t5\t5\t5\t5\nCapEff:\t000001ffffffffff\n", &user));
  EXPECT_EQ(user.user, 1000u);
  EXPECT_TRUE(user.may_write_all);
  ASSERT_TRUE(ParseFileUser("Name:\ta\nUid:\t7\t7\t7\t7\nCapEff:\t0000000000000001\n", &user));
  EXPECT_EQ(user.user, 7u);
  EXPECT_FALSE(user.may_write_all);
  EXPECT_FALSE(ParseFileUser("", &user));
  EXPECT_FALSE(ParseFileUser("Name:\ta\nUid:\nCapEff:\t0\n", &user));
}

TEST(WhyOutOfReach, ThisProcessReachesWhatItSees) {
  EXPECT_EQ(WhyOutOfReach(getpid(), std::filesystem::temp_directory_path().string()), "");
  EXPECT_EQ(WhyOutOfReach(getpid(), "/no/such/directory"), "");
  EXPECT_EQ(WhyOutOfReach(getpid(), ""), "");
}

}  // namespace

}  // namespace vramscope::cli
