// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "probe/session/session.h"
#include "probe/session/tables.h"

namespace vramscope::probe {
namespace {

TEST(Config, NothingIsRecordedWithoutAnAbsoluteDirectory) {
  Config config;
  EXPECT_FALSE(ReadConfig(nullptr, "cpu", &config));
  EXPECT_FALSE(ReadConfig("", "cpu", &config));
  EXPECT_FALSE(ReadConfig("relative/path", "cpu", &config));
  EXPECT_FALSE(ReadConfig(("/" + std::string(kMaxPathBytes, 'x')).c_str(), "", &config));
}

TEST(Config, ReadsWholeWordsOnly) {
  Config config;
  ASSERT_TRUE(ReadConfig("/tmp/x", "cpu,no-python,pausedly,,native", &config));
  EXPECT_STREQ(config.directory, "/tmp/x");
  EXPECT_TRUE(config.cpu);
  EXPECT_FALSE(config.python);
  EXPECT_TRUE(config.native);
  EXPECT_FALSE(config.paused);
  EXPECT_FALSE(config.await_report);
  EXPECT_TRUE(ReadConfig("/tmp/x", "cpu,await-report", &config) && config.await_report);
}

TEST(Config, OverflowHasABoundOrNone) {
  const auto bound = [](const char* options) {
    Config config;
    EXPECT_TRUE(ReadConfig("/tmp/x", options, &config));
    return config.overflow_bytes;
  };
  EXPECT_EQ(bound("cpu"), 0u);
  EXPECT_EQ(bound("overflow"), UINT64_MAX);
  EXPECT_EQ(bound("cpu,overflow=1048576,native"), 1048576u);
  for (const char* wrong : {"overflow=", "overflow=x", "overflow=12x", "overflowing", "overflow1",
                            "overflow=99999999999999999999999"})
    EXPECT_EQ(bound(wrong), 0u) << wrong;
  Config config;
  EXPECT_TRUE(ReadConfig("/tmp/x", "cpu,ring=67108864", &config));
  EXPECT_EQ(config.ring_bytes, uint64_t{64} << 20);
}

TEST(Config, PidIsANumberOfAProcessOrNone) {
  const auto pid = [](const char* options) {
    Config config;
    EXPECT_TRUE(ReadConfig("/tmp/x", options, &config));
    return config.outer_pid;
  };
  EXPECT_EQ(pid("cpu,pid=4711,native"), 4711u);
  for (const char* wrong : {"cpu", "pid", "pid=", "pid=x", "pids=7", "pid=99999999999"})
    EXPECT_EQ(pid(wrong), 0u) << wrong;
}

TEST(Config, SessionIsWholeOrNone) {
  const auto session = [](const std::string& options) {
    Config config;
    EXPECT_TRUE(ReadConfig("/tmp/x", options.c_str(), &config));
    return std::string(config.session);
  };
  EXPECT_EQ(session("cpu,session=0123abcd,native"), "0123abcd");
  EXPECT_EQ(session("cpu,session="), "");
  EXPECT_EQ(session("sessions=1"), "");
  EXPECT_EQ(session("session=" + std::string(kMaxSessionBytes - 1, 'x')),
            std::string(kMaxSessionBytes - 1, 'x'));
  EXPECT_EQ(session("session=" + std::string(kMaxSessionBytes, 'x')), "");
}

TEST(InternTable, RefusesToFillUpAndForgetsOnClear) {
  static InternTable<16> table{};
  uint32_t stored = 0;
  while (table.Insert(HashMix(7, stored + 1), stored + 1))
    ++stored;
  EXPECT_EQ(stored, 12u);
  for (uint32_t i = 1; i <= stored; ++i)
    EXPECT_EQ(table.Find(HashMix(7, i)), i);
  EXPECT_EQ(table.Find(HashMix(7, 99)), 0u);
  table.Clear();
  EXPECT_EQ(table.Find(HashMix(7, 1)), 0u);
}

}  // namespace
}  // namespace vramscope::probe
