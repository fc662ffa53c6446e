// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher/process_watch.h"

#include <gtest/gtest.h>

namespace vramscope::cli {
namespace {

using namespace std::string_view_literals;

TEST(EnrolmentOf, NeedsBothTheDirectoryAndTheProbe) {
  EXPECT_EQ(
      EnrolmentOf("A=1\0LD_PRELOAD=/x.so:/l/libvramscope_probe.so\0VRAMSCOPE_DIR=/d.vram.d\0"sv,
                  "/d.vram.d"),
      Enrolment::kHere);
  EXPECT_EQ(EnrolmentOf("VRAMSCOPE_DIR=/d.vram.d\0"sv, "/d.vram.d"), Enrolment::kNone);
  EXPECT_EQ(EnrolmentOf("LD_PRELOAD=/l/libvramscope_probe.so\0"sv, "/d.vram.d"), Enrolment::kNone);
  EXPECT_EQ(
      EnrolmentOf("LD_PRELOAD=/l/libvramscope_probe.so\0VRAMSCOPE_DIR=/e.vram.d"sv, "/d.vram.d"),
      Enrolment::kElsewhere);
  EXPECT_EQ(EnrolmentOf("", "/d.vram.d"), Enrolment::kNone);
}

TEST(ParseProcessStat, SurvivesAnyName) {
  ProcessStat stat;
  ASSERT_TRUE(ParseProcessStat(
      "12 (a) S 99 (b)) R 34 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5678 9 9 9", &stat));
  EXPECT_EQ(stat.state, 'R');
  EXPECT_EQ(stat.parent, 34);
  EXPECT_EQ(stat.flags, 4194560u);
  EXPECT_EQ(stat.start_ticks, 5678u);
  EXPECT_FALSE(ParseProcessStat("", &stat));
  EXPECT_FALSE(ParseProcessStat("12 (a)", &stat));
  EXPECT_FALSE(ParseProcessStat("12 (a) S 34 12", &stat));
}

}  // namespace
}  // namespace vramscope::cli
