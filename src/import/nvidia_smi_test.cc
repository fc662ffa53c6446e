// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "import/testing/imported.h"

namespace vramscope::imports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Imported;
using testing::ImportText;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kMsNs = 1'000'000;

TEST(NvidiaSmi, ReadingsWithoutAClockStandASecondApart) {
  const Imported log = ImportText("memory.used [MiB]\n0 MiB\n230 MiB\n4406 MiB\n230 MiB\n");
  ASSERT_EQ(log.error, "");
  EXPECT_EQ(log.format, "nvidia-smi");
  EXPECT_THAT(log.Counters(),
              ElementsAre(Pair(Pair(0, 0u), ElementsAre(Pair(kSecondNs, 230 * kMiB),
                                                        Pair(2 * kSecondNs, 4406 * kMiB),
                                                        Pair(3 * kSecondNs, 230 * kMiB)))));
  ASSERT_EQ(log.tables.samples.size(), 4u);
  EXPECT_EQ(log.tables.samples[0].used_bytes, 0u);
  EXPECT_EQ(log.tables.samples[0].time_ns, 0);
  EXPECT_EQ(log.tables.session.end_ns, 3 * kSecondNs);
  EXPECT_THAT(log.NoteOf("clock"), HasSubstr("a second stands for a reading"));
  EXPECT_EQ(log.NoteOf("mode"), "sampled");
  EXPECT_THAT(log.Losses(), IsEmpty());
}

TEST(NvidiaSmi, ThePeriodIsWhatTheUserSays) {
  const Imported log = ImportText("230 MiB\n231 MiB\n", {.period_ns = 10 * kMsNs});
  ASSERT_EQ(log.error, "");
  EXPECT_THAT(log.Counters(),
              ElementsAre(Pair(Pair(0, 0u),
                               ElementsAre(Pair(0, 230 * kMiB), Pair(10 * kMsNs, 231 * kMiB)))));
}

// A day of an idle GPU is a few rows.
TEST(NvidiaSmi, OfEqualReadingsTheFirstAndTheLastAreKept) {
  std::string text = "memory.used [MiB]\n";
  for (int i = 0; i < 1000; ++i)
    text += "5 MiB\n";
  const Imported log = ImportText(text + "6 MiB\n6 MiB\n");
  ASSERT_EQ(log.error, "");
  const auto& rows = log.tables.samples;
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1].time_ns, 999 * kSecondNs);
  EXPECT_EQ(rows[1].repeats, 998u);
  EXPECT_EQ(rows[2].used_bytes, uint64_t{6} << 20);
  EXPECT_EQ(rows[3].time_ns, 1001 * kSecondNs);
  EXPECT_EQ(rows[0].repeats + rows[2].repeats + rows[3].repeats, 0u);
  EXPECT_EQ(log.NoteOf("readings"), "1,002");
}

TEST(NvidiaSmi, DevicesAreToldApartByNumberAndHaveTheirOwnClock) {
  const Imported log = ImportText(
      "timestamp, index, name, memory.total [MiB], memory.used [MiB]\n"
      "2024/05/01 10:00:00.100, 0, Tesla T4, 15360 MiB, 3 MiB\n"
      "2024/05/01 10:00:00.102, 1, Tesla T4, 15360 MiB, 5 MiB\n"
      "2024/05/01 10:00:01.100, 0, Tesla T4, 15360 MiB, 400 MiB\n"
      "2024/05/01 10:00:01.101, 1, Tesla T4, 15360 MiB, [N/A]\n"
      "2024/05/01 10:00:02.100, 0, Tesla T4, 15360 MiB, 3 MiB\n");
  ASSERT_EQ(log.error, "");
  EXPECT_THAT(
      log.Counters(),
      ElementsAre(Pair(Pair(0, 0u), ElementsAre(Pair(0, 3 * kMiB), Pair(kSecondNs, 400 * kMiB),
                                                Pair(2 * kSecondNs, 3 * kMiB))),
                  Pair(Pair(1, 0u), ElementsAre(Pair(0, 5 * kMiB)))));
  EXPECT_EQ(log.tables.devices[1].total_bytes, uint64_t{15360} << 20);
  EXPECT_EQ(log.Text(log.tables.devices[1].name), "Tesla T4");
  EXPECT_EQ(log.tables.session.begin_wall_ns, 1'714'557'600'100 * kMsNs);
  EXPECT_THAT(log.Losses(), ElementsAre(Pair("readings without a figure", 1u)));
}

TEST(NvidiaSmi, AProcessThatIsNotListedAnyMoreHasNothing) {
  const Imported log = ImportText(
      "pid, process_name, used_gpu_memory [MiB]\n"
      "10, python, 100 MiB\n11, \"a, b\", 50 MiB\n10, python, 120 MiB\n10, python, 130 MiB\n");
  ASSERT_EQ(log.error, "");
  EXPECT_THAT(
      log.Counters(),
      ElementsAre(Pair(Pair(0, 10u), ElementsAre(Pair(0, 100 * kMiB), Pair(kSecondNs, 120 * kMiB),
                                                 Pair(2 * kSecondNs, 130 * kMiB))),
                  Pair(Pair(0, 11u), ElementsAre(Pair(0, 50 * kMiB), Pair(kSecondNs, 0)))));
  EXPECT_EQ(log.Text(log.tables.processes[2].command), "a, b");
  EXPECT_THAT(log.NoteOf("not in it"), HasSubstr("memory that is of no listed process"));
}

TEST(NvidiaSmi, WhatIsNoReadingIsCounted) {
  const Imported log = ImportText(
      "memory.used [MiB]\n5 MiB\nTerminated\n99999999999999 MiB\n18446744073709551617 MiB\n-3 MiB\n"
      "\nmemory.used [MiB]\n6 MiB\n");
  ASSERT_EQ(log.error, "");
  EXPECT_EQ(log.tables.samples.size(), 2u);
  EXPECT_THAT(log.Losses(), ElementsAre(Pair("rows that are no reading of nvidia-smi", 4u)));
}

TEST(NvidiaSmi, ALogThatWasForcedAndIsNoneIsAnError) {
  EXPECT_THAT(ImportText("hello\n", {}, "x.txt", "nvidia-smi").error,
              HasSubstr("x.txt, line 1: neither a header"));
  EXPECT_THAT(ImportText("memory.used [MiB]\n").error, HasSubstr("nothing was imported"));
  EXPECT_EQ(ImportText("1, 2, 3\n").format, "");
}

}  // namespace
}  // namespace vramscope::imports
