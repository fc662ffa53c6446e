// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "import/testing/imported.h"

namespace vramscope::imports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Imported;
using testing::ImportText;
using ::testing::IsEmpty;
using ::testing::Pair;

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
  EXPECT_THAT(log.NoteOf("clock"), HasSubstr("one reading each second"));
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
  EXPECT_THAT(log.NoteOf("not in it"), HasSubstr("memory of processes that the log does not list"));
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
              HasSubstr("x.txt, line 1: has neither a header"));
  EXPECT_THAT(ImportText("memory.used [MiB]\n").error, HasSubstr("nothing was imported"));
  EXPECT_EQ(ImportText("1, 2, 3\n").format, "");
  EXPECT_EQ(ImportText("1764189075,1,24576\n").format, "");
}

// The last figure of each device, in MiB.
std::vector<int64_t> LastFigures(const Imported& log) {
  std::vector<int64_t> figures;
  for (const auto& [account, steps] : log.Counters())
    figures.push_back(steps.back().second / int64_t{kMiB});
  return figures;
}

TEST(NvidiaSmi, WithoutAnIndexPausesBetweenQueriesTellHowManyGpusThereAre) {
  std::string text = "timestamp, name, memory.used [MiB]\n";
  for (int i = 0; i < 600; ++i) {
    const std::string stamp = "2026/10/08 10:" + std::to_string(10 + i / 60) + ":" +
                              std::to_string(i % 60 / 10) + std::to_string(i % 10);
    text += stamp + ".001, Tesla T4, " + std::to_string(6000 + i) + " MiB\n" + stamp +
            ".003, Tesla T4, 10 MiB\n";
  }
  const Imported log = ImportText(text);
  ASSERT_EQ(log.error, "");
  EXPECT_THAT(LastFigures(log), ElementsAre(6599, 10));
  EXPECT_THAT(log.NoteOf("devices"), HasSubstr("2 GPUs by the order of the rows"));
  EXPECT_EQ(log.NoteOf("readings"), "600");
}

TEST(NvidiaSmi, WithoutAnIndexNamesAndSizesTellGpusApart) {
  const std::string a = "A100, 40960 MiB, ", b = "T4, 15360 MiB, ";
  const Imported log = ImportText("name, memory.total [MiB], memory.used [MiB]\n" + a + "1 MiB\n" +
                                  b + "9 MiB\n" + a + "2 MiB\n" + b + "8 MiB\n" + b + "7 MiB\n");
  ASSERT_EQ(log.error, "");
  EXPECT_THAT(LastFigures(log), ElementsAre(2, 7));
  EXPECT_EQ(log.Text(log.tables.devices[2].name), "T4");
}

TEST(NvidiaSmi, WithoutAnIndexAHeaderForEachQueryTellsHowManyGpusThereAre) {
  const std::string head = "memory.used [MiB]\n";
  const std::string query = head + "1 MiB\n2 MiB\n";
  EXPECT_THAT(LastFigures(ImportText(query + query + head + "3 MiB\n4 MiB\n")), ElementsAre(3, 4));
  EXPECT_THAT(LastFigures(ImportText(query + query)), ElementsAre(2));
}

TEST(NvidiaSmi, OneGpuThatIsReadOftenStaysOne) {
  std::string text = "timestamp, memory.used [MiB]\n";
  for (int i = 0; i < 50; ++i)
    text +=
        "2026/10/08 10:00:00." + std::to_string(100 + 10 * i) + ", " + std::to_string(i) + " MiB\n";
  const Imported log = ImportText(text);
  EXPECT_THAT(LastFigures(log), ElementsAre(49));
  EXPECT_THAT(log.NoteOf("devices"), HasSubstr("count as one GPU"));
}

TEST(NvidiaSmi, StampsOfOtherClocksAreRead) {
  for (const std::string stamp :
       {"2025-11-26T20:31:15+00:00", "2025-11-26T15:31:15-0500", "1764189075", "1764189075000",
        "2025-11-26 20:31:15", "2025/11/26 20:31:15.000"}) {
    const Imported log = ImportText("timestamp, index, memory.used\n" + stamp + ", 0, 5\n");
    EXPECT_EQ(log.error, "") << stamp;
    EXPECT_EQ(log.tables.session.begin_wall_ns, 1'764'189'075 * kSecondNs) << stamp;
  }
  EXPECT_THAT(
      ImportText("timestamp, memory.used [MiB]\nyesterday, 5 MiB\n").error,
      HasSubstr("1 rows that are no reading of nvidia-smi; line 2: 'yesterday' is not a time"));
}

TEST(NvidiaSmi, WhatWasCutOffIsALoss) {
  const std::string head = "timestamp, index, memory.used [MiB]\n";
  const std::string row = "2026/10/08 10:00:00.001, 0, 6000";
  for (const std::string& text : {head + row + " MiB\n" + "2026/10/08 10:00:05.001, 0, 61",
                                  head + row + "\n" + "2026/10/08 10:00:05.001, 0, 61"}) {
    const Imported log = ImportText(text);
    ASSERT_EQ(log.error, "");
    EXPECT_THAT(LastFigures(log), ElementsAre(6000));
    EXPECT_THAT(log.Losses(), ElementsAre(Pair("rows that are no reading of nvidia-smi", 1u)));
    EXPECT_THAT(log.NoteOf("first row that was not read"), HasSubstr("line 3"));
  }
}

TEST(NvidiaSmi, ARowMayHaveACellThatTheHeaderDoesNotName) {
  const Imported log = ImportText(
      "timestamp,gpu_index,utilization.gpu,memory.used,memory.total\n"
      "2026/03/19 17:05:56.181, 1, GPU-aa, 6 %, 1974 MiB, 16303 MiB\n");
  ASSERT_EQ(log.error, "");
  EXPECT_THAT(LastFigures(log), ElementsAre(1974));
  EXPECT_EQ(log.tables.devices[1].total_bytes, uint64_t{16303} << 20);
  EXPECT_THAT(ImportText("memory.used, memory.total\n1, 2, 3\n").error,
              HasSubstr("line 2: 3 cells where 2 are expected"));
}

TEST(NvidiaSmi, AHeaderMayBeMissingOrStandBehindOtherLines) {
  EXPECT_THAT(LastFigures(ImportText("2024/08/08 16:16:58.159, 4 MiB, 81920 MiB\n")),
              ElementsAre(4));
  EXPECT_THAT(LastFigures(ImportText("2024/08/08 16:16:58.159, 0, 900, 81920\n")),
              ElementsAre(900));
  const Imported log = ImportText("Starting on node01\n\nmemory.used [MiB]\n7 MiB\n");
  EXPECT_THAT(LastFigures(log), ElementsAre(7));
  EXPECT_EQ(log.NoteOf("lines before the first row"), "1");
}

TEST(NvidiaSmi, AGpuWithoutAFigureIsAnErrorThatSaysSo) {
  EXPECT_THAT(ImportText("name, memory.used [MiB]\nNVIDIA GB10, [N/A]\n").error,
              HasSubstr("shares the system's memory"));
}

TEST(NvidiaSmi, ItsMonitorsAndItsTableAreRead) {
  const Imported dmon = ImportText(
      "#Date       Time        gpu     fb   bar1\n#YYYYMMDD   HH:MM:SS    Idx     MB     MB\n"
      " 20251126   20:31:15      0    450     10\n 20251126   20:31:15      1      9     10\n"
      " 20251126   20:31:16      0    451     10\n");
  ASSERT_EQ(dmon.error, "");
  EXPECT_THAT(LastFigures(dmon), ElementsAre(451, 9));
  EXPECT_EQ(dmon.tables.session.begin_wall_ns, 1'764'189'075 * kSecondNs);
  const Imported pmon = ImportText(
      "# gpu        pid  type    fb   command\n# Idx          #   C/G    MB   name\n"
      "    0       7372     C   136   ffmpeg\n    1          -     -     -   -\n");
  ASSERT_EQ(pmon.error, "");
  EXPECT_THAT(LastFigures(pmon), ElementsAre(136));
  EXPECT_EQ(pmon.Text(pmon.tables.processes[1].command), "ffmpeg");
  const Imported table = ImportText(
      "Wed Nov 26 20:31:15 2025       \n+-----------------------+\n"
      "| NVIDIA-SMI 440.33.01    Driver Version: 440.33.01    CUDA Version: 10.2     |\n"
      "|   0  Tesla T4            Off  | 00000000:00:1E.0 Off |                    0 |\n"
      "| N/A   36C    P8     9W /  70W |    450MiB / 15109MiB |      0%      Default |\n"
      "|    0   N/A  N/A      1234      C   python                        440MiB |\n");
  ASSERT_EQ(table.error, "");
  EXPECT_THAT(LastFigures(table), ElementsAre(450));
  EXPECT_EQ(table.Text(table.tables.devices[1].name), "Tesla T4");
  EXPECT_EQ(table.tables.session.begin_wall_ns, 1'764'189'075 * kSecondNs);
}

}  // namespace
}  // namespace vramscope::imports
