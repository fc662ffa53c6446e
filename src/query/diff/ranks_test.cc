// SPDX-License-Identifier: Apache-2.0
// Ranks of one program, each with a recording of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/units.h"
#include "query/diff/diff.h"
#include "query/dimensions/report.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;
using ::testing::ElementsAre;

// A process with 100 MiB of a layer's activations, and a data loader; `extra` more in h.3.
std::unique_ptr<tables::MemoryRecording> Rank(int32_t number, uint64_t extra, int64_t late_ns = 0) {
  RecordingBuilder builder;
  tables::Tables& tables = builder.tables;
  tables.session.begin_ns = 1000 * (number + 1);  // every host's own clock
  tables.session.begin_wall_ns = 1'000'000 + late_ns;
  const auto gpu = builder.Device(tables::DeviceKind::kGpu, number);
  const auto process = builder.Process(100, tables.session.begin_ns + 500);
  tables.processes[process.value].rank = number;
  builder.Process(101, tables.session.begin_ns + 400);
  const auto account = builder.Account(process, gpu);
  tables::SiteRow site = builder.SiteOf(account, Part::kAllocated, Category::kActivation);
  site.module = builder.Text("h.0");
  builder.Row(builder.Site(site), tables.session.begin_ns + 10, tables::kNever, 100 * kMiB);
  site.module = builder.Text("h.3");
  builder.Row(builder.Site(site), tables.session.begin_ns + 20, tables::kNever, 10 * kMiB + extra);
  tables.peaks.push_back({gpu, tables.session.begin_ns + 20, 110 * kMiB + extra, 0});
  return builder.Make();
}

TEST(RanksTest, AHeavyRankIsNamedWithItsLayer) {
  RankFold fold;
  for (const int32_t number : {5, 0, 1, 3}) {
    const auto recording = Rank(number, number == 3 ? 50 * kMiB : 0, number * 1000);
    ASSERT_TRUE(fold.Add("r" + std::to_string(number) + ".vram", *recording).ok());
  }
  const RankReport report = std::move(fold).Finish();
  ASSERT_EQ(report.ranks.size(), 4u);
  EXPECT_EQ(report.ranks[1].name, "rank 1");
  EXPECT_THAT(report.missing, ElementsAre(2, 4));
  EXPECT_EQ(report.bytes, 4 * 110 * kMiB + 50 * kMiB);
  EXPECT_EQ(report.categories.at("activation"), report.bytes);
  EXPECT_EQ(report.processes_without_memory, 4u);
  EXPECT_EQ(report.starts_apart_ns, 5000);
  // On one clock: 20 ns after each began.
  EXPECT_EQ(report.ranks[2].peak_wall_ns - report.first_wall_ns, 3020);
  EXPECT_TRUE(report.IsUneven());
  EXPECT_EQ(report.ranks[report.heaviest].name, "rank 3");
  EXPECT_EQ(report.excess_bytes(), 50 * kMiB);
  ASSERT_EQ(report.excess.size(), 1u);
  EXPECT_EQ(report.excess[0].layer, "h.3");
  EXPECT_EQ(report.excess[0].bytes, 50 * kMiB);
}

// A layer of another name with fewer bytes is not an excess: the parts add up to the whole.
TEST(RanksTest, TheExcessAddsUp) {
  RankFold fold;
  for (const int32_t number : {0, 1}) {
    RecordingBuilder builder;
    const auto cpu = builder.Device(tables::DeviceKind::kCpu, -1);
    const auto process = builder.Process(100, 500);
    builder.tables.processes[process.value].rank = number;
    builder.tables.processes[process.value].command =
        builder.Text("/usr/bin/python train.py --rank " + std::to_string(number));
    const auto account = builder.Account(process, cpu);
    const auto add = [&](Category category, const std::string& layer, uint64_t bytes) {
      tables::SiteRow site = builder.SiteOf(account, Part::kAllocated, category);
      site.module = builder.Text(layer);
      builder.Row(builder.Site(site), 10, tables::kNever, bytes);
    };
    add(Category::kCommunication, number == 0 ? "0" : "DistributedDataParallel", 4 * kMiB);
    add(Category::kInput, "data", number == 0 ? kMiB : 6 * kMiB);
    add(Category::kActivation, "h.0", number == 0 ? 2 * kMiB : kMiB);
    add(Category::kActivation, "h.3", number == 0 ? kMiB : 21 * kMiB);
    add(Category::kBuffer, "norm", number == 0 ? 2 * kMiB : kMiB);
    builder.tables.peaks.push_back({cpu, 10, 0, 0});
    ASSERT_TRUE(fold.Add(std::to_string(number) + ".vram", *builder.Make()).ok());
  }
  const RankReport report = std::move(fold).Finish();
  EXPECT_EQ(report.not_compared, "");
  EXPECT_EQ(report.ranks[0].program, "python train.py");
  EXPECT_EQ(report.excess_bytes(), 23 * kMiB);
  std::vector<std::string> said;
  for (const RankExcess& part : report.excess)
    said.push_back(part.category + " " + part.layer + " " +
                   std::to_string(part.bytes / static_cast<int64_t>(kMiB)));
  // A layer with its own bytes, and beside it the rest of the category.
  EXPECT_THAT(said,
              ElementsAre("activation h.3 20", "input data 5", "activation  -1", "buffer norm -1"));
}

TEST(RanksTest, ProgramsThatHaveNothingToDoWithEachOtherAreNotCompared) {
  const auto of = [](const std::string& command, int32_t rank) {
    RecordingBuilder builder;
    const auto cpu = builder.Device(tables::DeviceKind::kCpu, -1);
    const auto process = builder.Process(100, 500);
    builder.tables.processes[process.value].rank = rank;
    builder.tables.processes[process.value].command = builder.Text(command);
    builder.Row(builder.Site(builder.SiteOf(builder.Account(process, cpu))), 10, tables::kNever,
                kMiB);
    return builder.Make();
  };
  RankFold programs;
  ASSERT_TRUE(programs.Add("a.vram", *of("python train.py 1", -1)).ok());
  ASSERT_TRUE(programs.Add("b.vram", *of("python serve.py", -1)).ok());
  RankReport report = std::move(programs).Finish();
  EXPECT_EQ(report.not_compared, "2 programs: python serve.py, python train.py");
  EXPECT_FALSE(report.IsUneven());
  RankFold runs;
  ASSERT_TRUE(runs.Add("a.vram", *of("python train.py 1", 0)).ok());
  ASSERT_TRUE(runs.Add("b.vram", *of("python train.py 2", 0)).ok());
  report = std::move(runs).Finish();
  EXPECT_EQ(report.not_compared, "rank 0 is in several recordings, so they are of several runs");
}

TEST(RanksTest, EqualRanksAreEven) {
  RankFold fold;
  for (int32_t number = 0; number < 3; ++number)
    ASSERT_TRUE(fold.Add("r.vram", *Rank(number, static_cast<uint64_t>(number) * kMiB)).ok());
  const RankReport report = std::move(fold).Finish();
  EXPECT_FALSE(report.IsUneven());
  EXPECT_TRUE(report.missing.empty());
}

TEST(RanksTest, AHostileNumberMakesNoLongList) {
  RankFold fold;
  ASSERT_TRUE(fold.Add("r.vram", *Rank(0, 0)).ok());
  auto recording = Rank(1, 0);
  RecordingBuilder builder;
  builder.tables = recording->tables();
  builder.tables.processes[1].rank = INT32_MAX;
  builder.Row(tables::SiteId{1}, 2010, tables::kNever, kMiB);
  ASSERT_TRUE(fold.Add("s.vram", *builder.Make()).ok());
  EXPECT_LT(std::move(fold).Finish().missing.size(), 100u);
}

// Two ranks on one device, the first with 30 MiB at 10 and the second with 20 MiB at 50: at the
// device's peak, 40 MiB at 30, each has another 20.
TEST(RanksTest, RanksThatShareADeviceAreToldAtTheirOwnPeaks) {
  RecordingBuilder builder;
  tables::Tables& tables = builder.tables;
  const auto cpu = builder.Device(tables::DeviceKind::kCpu, -1);
  for (int32_t number = 0; number < 2; ++number) {
    const auto process = builder.Process(100 + static_cast<uint32_t>(number), 100);
    tables.processes[process.value].rank = number;
    const auto account = builder.Account(process, cpu);
    tables::SiteRow site = builder.SiteOf(account, Part::kAllocated, Category::kActivation);
    builder.Row(builder.Site(site), 20, 40, 20 * kMiB);
    site.module = builder.Text("h.1");
    builder.Row(builder.Site(site), number == 0 ? 10 : 50, number == 0 ? 15 : 60,
                (number == 0 ? 30 : 25) * kMiB);
  }
  tables.peaks.push_back({cpu, 20, 40 * kMiB, 0});
  const auto recording = builder.Make();
  const auto report = RanksWithin(*recording);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->ranks.size(), 2u);
  EXPECT_EQ(report->ranks[0].bytes, 30 * kMiB);
  EXPECT_EQ(report->ranks[0].peak_ns, 10);
  EXPECT_EQ(report->ranks[1].bytes, 25 * kMiB);
  EXPECT_EQ(report->ranks[1].peak_ns, 50);
  EXPECT_EQ(report->ranks[report->heaviest].name, "rank 0");
  EXPECT_EQ(report->ranks[0].on, "cpu");
}

// The second rank begins when the first has freed all.
TEST(RanksTest, ARankWithoutMemoryAtTheDevicesPeakHasARow) {
  RecordingBuilder builder;
  tables::Tables& tables = builder.tables;
  const auto gpu = builder.Device(tables::DeviceKind::kGpu, 0);
  for (int32_t number = 0; number < 2; ++number) {
    const auto process = builder.Process(100 + static_cast<uint32_t>(number), 100);
    tables.processes[process.value].rank = number;
    const auto site = builder.Site(builder.SiteOf(builder.Account(process, gpu)));
    builder.Row(site, 10 + 40 * number, 30 + 40 * number, (number == 0 ? 30 : 20) * kMiB);
  }
  tables.peaks.push_back({gpu, 10, 30 * kMiB, 0});
  const auto report = RanksWithin(*builder.Make());
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->ranks.size(), 2u);
  EXPECT_EQ(report->ranks[1].name, "rank 1");
  EXPECT_EQ(report->ranks[1].bytes, 20 * kMiB);
  EXPECT_EQ(report->ranks[1].peak_ns, 50);
  EXPECT_EQ(report->processes_without_memory, 0u);
}

// On its own device, which another process fills after it.
TEST(RanksTest, ARankMayHaveNoBytesAtThePeak) {
  RecordingBuilder builder;
  tables::Tables& tables = builder.tables;
  for (int32_t number = 0; number < 2; ++number) {
    const auto gpu = builder.Device(tables::DeviceKind::kGpu, number);
    const auto process = builder.Process(100 + static_cast<uint32_t>(number), 100);
    tables.processes[process.value].rank = number;
    const auto site = builder.Site(builder.SiteOf(builder.Account(process, gpu)));
    builder.Row(site, 10, number == 0 ? 90 : 20, kMiB);
    tables.peaks.push_back({gpu, 50, kMiB, 0});
  }
  const auto report = RanksWithin(*builder.Make());
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->ranks.size(), 2u);
  EXPECT_EQ(report->ranks[1].bytes, 0u);
  EXPECT_EQ(report->ranks[1].on, "gpu1");
  EXPECT_EQ(report->ranks[1].device, 1);
}

// Two jobs in one recording, and a process that a rank started.
TEST(RanksTest, RanksOfOneNumberAreNamedByTheirProcesses) {
  RecordingBuilder builder;
  tables::Tables& tables = builder.tables;
  const auto cpu = builder.Device(tables::DeviceKind::kCpu, -1);
  for (const uint32_t pid : {100u, 101u, 102u}) {
    const auto process = builder.Process(pid, 100);
    tables.processes[process.value].rank = pid == 101 ? 1 : 0;
    builder.Row(builder.Site(builder.SiteOf(builder.Account(process, cpu))), 10, tables::kNever,
                kMiB);
  }
  tables.peaks.push_back({cpu, 10, 3 * kMiB, 0});
  auto report = RanksWithin(*builder.Make());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->not_compared,
            "rank 0 is two processes, 100 and 102, so they are of several jobs");
  ASSERT_EQ(report->ranks.size(), 3u);
  EXPECT_EQ(report->ranks[0].name, "rank 0 (100)");
  EXPECT_EQ(report->ranks[1].name, "rank 0 (102)");
  tables.processes[3].parent_pid = 100;
  report = RanksWithin(*builder.Make());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->not_compared, "");
  ASSERT_EQ(report->ranks.size(), 3u);
  EXPECT_EQ(report->ranks[0].name, "rank 0's 102");
  EXPECT_EQ(report->ranks[0].number, -1);
  EXPECT_EQ(report->ranks[1].name, "rank 0");
}

// NCCL maps its peers' memory. A rank is one row, at the device with most of its bytes.
TEST(RanksTest, ARankWithMemoryOnTwoDevicesIsOneRow) {
  RecordingBuilder builder;
  tables::Tables& tables = builder.tables;
  const tables::DeviceId gpus[] = {builder.Device(tables::DeviceKind::kGpu, 0),
                                   builder.Device(tables::DeviceKind::kGpu, 1)};
  for (uint32_t number = 0; number < 2; ++number) {
    const auto process = builder.Process(100 + number, 100);
    tables.processes[process.value].rank = static_cast<int32_t>(number);
    const auto own = builder.Account(process, gpus[number]);
    builder.Row(builder.Site(builder.SiteOf(own)), 10, tables::kNever, 100 * kMiB);
    const auto of_peer = builder.Account(process, gpus[1 - number]);
    builder.Row(builder.Site(builder.SiteOf(of_peer)), 10, tables::kNever,
                (number == 0 ? 1 : 20) * kMiB);
  }
  for (const tables::DeviceId gpu : gpus)
    tables.peaks.push_back({gpu, 10, 0, 0});
  const auto recording = builder.Make();
  const auto report = RanksWithin(*recording);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->ranks.size(), 2u);
  EXPECT_EQ(report->ranks[0].bytes, 101 * kMiB);
  EXPECT_EQ(report->ranks[0].on, "gpu0");
  EXPECT_EQ(report->ranks[1].bytes, 120 * kMiB);
  EXPECT_EQ(report->ranks[1].on, "gpu0,gpu1");
  EXPECT_EQ(report->ranks[1].device, 1);
  EXPECT_EQ(report->bytes, 221 * kMiB);
}

TEST(RanksTest, NothingToTell) {
  EXPECT_TRUE(RankFold().Finish().ranks.empty());
}

// A rank of 400 iterations, the 123rd with the peak, and 150 layers with long names.
TEST(SummaryTest, LongRun_IsThinnedAndKeepsItsPeakAndSums) {
  constexpr int64_t kLast = 400;
  RecordingBuilder builder;
  tables::Tables& tables = builder.tables;
  const auto gpu = builder.Device(tables::DeviceKind::kGpu, 0);
  const auto process = builder.Process(100, 10'000);
  tables.processes[process.value].rank = 7;
  const auto account = builder.Account(process, gpu);
  tables::SiteRow site = builder.SiteOf(account, Part::kAllocated, Category::kActivation);
  const std::string umlauts = [] {
    std::string text;
    for (int i = 0; i < 150; ++i)
      text += "\u00e4";
    return text;
  }();
  for (int i = 0; i < 150; ++i) {
    site.module = builder.Text(umlauts + std::to_string(i));
    builder.Row(builder.Site(site), 10 + i, tables::kNever, (1 + static_cast<uint64_t>(i)) * kMiB);
  }
  site.module = builder.Text("once");
  builder.Row(builder.Site(site), 1235, 1239, 500 * kMiB);
  for (int64_t i = 0; i < kLast; ++i)
    tables.iterations.push_back({process, i, i * 10, (i + 1) * 10});
  const uint64_t peak_bytes = (500 + 151 * 150 / 2) * kMiB;
  tables.peaks.push_back({gpu, 1235, peak_bytes, 0});
  tables.notes = {{builder.Text("mesh of rank 7"), builder.Text("dp=0")},
                  {builder.Text("mesh of rank 7"), builder.Text("dp=0,tp=1")},
                  {builder.Text("place of pid 100"), builder.Text("local_rank=3,node=n1,pod=,x")},
                  {builder.Text("PyTorch"), builder.Text("2.11.0")}};
  const auto summary = MakeSummary(*builder.Make());
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  ASSERT_EQ(summary->ranks.size(), 1u);
  EXPECT_EQ(summary->ranks[0].mesh, "dp=0,tp=1");
  EXPECT_EQ(summary->ranks[0].local_rank, 3);
  EXPECT_EQ(summary->ranks[0].group_rank, std::nullopt);
  EXPECT_EQ(summary->ranks[0].node, "n1");
  EXPECT_EQ(summary->ranks[0].pod, "");
  EXPECT_EQ(summary->ranks[0].peak_bytes, peak_bytes);
  EXPECT_EQ(summary->ranks[0].peak_iteration, 123);
  ASSERT_LE(summary->iterations.size(), 96u);
  EXPECT_EQ(summary->iterations.back().iteration, kLast - 1);
  const auto highest =
      std::max_element(summary->iterations.begin(), summary->iterations.end(),
                       [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; });
  EXPECT_EQ(highest->iteration, 123);
  EXPECT_EQ(highest->peak_bytes, peak_bytes);
  uint64_t sum = 0;
  for (const SummaryPart& part : summary->parts) {
    sum += part.bytes;
    EXPECT_LE(part.layer.size(), 83u);
    // Whole characters on both sides of the cut.
    if (const size_t cut = part.layer.find("..."); cut != std::string::npos) {
      EXPECT_TRUE(part.layer[cut - 1] == '\xa4' && part.layer[cut + 3] == '\xc3') << part.layer;
    }
  }
  EXPECT_EQ(sum, peak_bytes);
  EXPECT_LE(summary->parts.size(), 49u);
  ASSERT_EQ(summary->settings.size(), 1u);
  EXPECT_EQ(summary->settings[0].value, "2.11.0");
}

}  // namespace
}  // namespace vramscope::query
