// SPDX-License-Identifier: Apache-2.0
#include "pipeline/survivors.h"

#include <gtest/gtest.h>

#include <string>

namespace vramscope::cli {
namespace {

using namespace std::string_view_literals;

TEST(EnrolmentOf, NeedsBothTheDirectoryAndTheProbe) {
  EXPECT_EQ(
      EnrolmentOf("A=1\0LD_PRELOAD=/x.so:/l/libvramscope_probe.so\0VRAMSCOPE_DIR=/d.vram.d\0"sv,
                  "/d.vram.d", {"1f", "2e"}),
      Enrolment::kHere);
  EXPECT_EQ(EnrolmentOf("VRAMSCOPE_DIR=/d.vram.d\0"sv, "/d.vram.d", {"1f", "2e"}),
            Enrolment::kNone);
  EXPECT_EQ(EnrolmentOf("LD_PRELOAD=/l/libvramscope_probe.so\0"sv, "/d.vram.d", {"1f", "2e"}),
            Enrolment::kNone);
  EXPECT_EQ(EnrolmentOf("LD_PRELOAD=/l/libvramscope_probe.so\0VRAMSCOPE_DIR=/e.vram.d"sv,
                        "/d.vram.d", {"1f", "2e"}),
            Enrolment::kElsewhere);
  EXPECT_EQ(EnrolmentOf("", "/d.vram.d", {"1f", "2e"}), Enrolment::kNone);
}

TEST(EnrolmentOf, TellsRecordingsOfOneName) {
  const auto with = [](const std::string& options) {
    return EnrolmentOf("LD_PRELOAD=/l/libvramscope_probe.so" + std::string(1, '\0') +
                           "VRAMSCOPE_DIR=/d.vram.d" + std::string(1, '\0') +
                           "VRAMSCOPE_OPTIONS=" + options,
                       "/d.vram.d", {"1f", "2e"});
  };
  EXPECT_EQ(with("cpu"), Enrolment::kHere);
  EXPECT_EQ(with("cpu,session=1f,native"), Enrolment::kHere);
  EXPECT_EQ(with("session=1"), Enrolment::kElsewhere);
}

TEST(MayRecord, WaitsForTheYoungAndForWhatLooksLikeAnInterpreter) {
  constexpr char kShell[] =
      "55d0-55d1 r-xp 00000000 08:01 11 /usr/bin/dash\n"
      "7f00-7f01 r-xp 00000000 08:01 12 /home/me/pytorch/libvramscope_probe.so\n"
      "7ffe-7fff rw-p 00000000 00:00 0 [stack]\n";
  EXPECT_TRUE(MayRecord(kShell, 0.1));
  EXPECT_FALSE(MayRecord(kShell, 60));
  EXPECT_TRUE(MayRecord("55d0-55d1 r-xp 00000000 08:01 11 /usr/bin/python3.11\n", 3600));
  EXPECT_TRUE(MayRecord(std::string(kShell) + "1-2 r-xp 0 08:01 3 /l/libcudart.so.12\n", 60));
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
