// SPDX-License-Identifier: Apache-2.0
#include "util/spelling.h"

#include <gtest/gtest.h>

namespace vramscope::util {
namespace {

const std::vector<std::string> kCommands = {"run", "report", "info", "export", "finish", "env"};

TEST(ClosestName, FindsTypingMistakes) {
  EXPECT_EQ(ClosestName("reprot", kCommands), "report");
  EXPECT_EQ(ClosestName("rnu", kCommands), "run");
  EXPECT_EQ(ClosestName("finsh", kCommands), "finish");
  EXPECT_EQ(ClosestName("--no-pyton", {"--no-python", "--native"}), "--no-python");
}

TEST(ClosestName, TakesABeginning) {
  EXPECT_EQ(ClosestName("expo", kCommands), "export");
  EXPECT_EQ(ClosestName("--start", {"--start-paused", "--html"}), "--start-paused");
}

TEST(ClosestName, SaysNothingWhereNothingIsClose) {
  EXPECT_EQ(ClosestName("profile", kCommands), "");
  EXPECT_EQ(ClosestName("x", kCommands), "");
  EXPECT_EQ(ClosestName("-x", {"-o", "-h"}), "");
}

}  // namespace
}  // namespace vramscope::util
