// SPDX-License-Identifier: Apache-2.0
#include "pipeline/compact/planner.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "format/decoder.h"
#include "trace/live/live_trace.h"
#include "trace/testing/live_file_builder.h"

namespace vramscope::compact {
namespace {

namespace fs = std::filesystem;
using format::NameKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using trace::kStart;

constexpr uint64_t kCut = 100'000;

// "BlockAlloc 10": the record and its address, in hexadecimal, or its text.
struct TextOf {
  std::string text;
  void Time(const char*, uint64_t) {}
  void Address(const char*, uint64_t value) { text += fmt::format(" {:x}", value); }
  void Uint(const char*, uint64_t) {}
  void Sint(const char*, int64_t) {}
  void Blob(const char*, const format::Bytes& value) {
    text += ' ' + std::string(value.data, value.size);
  }
};

// A process whose chunks are all old.
class PlannerTest : public ::testing::Test {
 protected:
  PlannerTest() { fs::create_directories(directory_); }
  ~PlannerTest() override { fs::remove_all(directory_); }

  // Times are counted from the process's begin.
  void Alloc(uint64_t time, uint64_t address, uint64_t size = 512, uint64_t stack = 0) {
    main().Add(format::BlockAlloc{
        .time = kStart + time, .address = address, .size = size, .device = -1, .stack = stack});
  }
  void Free(uint64_t time, uint64_t address) {
    main().Add(format::BlockFree{.time = kStart + time, .address = address, .device = -1});
  }
  void Name(uint64_t time, uint64_t address, NameKind kind, const std::string& name) {
    main().Add(format::Name{.time = kStart + time,
                            .address = address,
                            .device = -1,
                            .kind = static_cast<uint64_t>(kind),
                            .name = main().String(name)});
  }
  void Step(uint64_t time, format::StepKind kind) {
    main().Add(format::Step{
        .time = kStart + time, .kind = static_cast<uint64_t>(kind), .optimizer = 0x99});
  }
  trace::testing::LiveFileBuilder::StreamBuilder& main() { return file_.Stream(1); }

  // The records that are kept of the chunks that begin before the cut, definitions apart.
  std::vector<std::string> Kept(const std::vector<int64_t>& instants = {}) {
    // The process ends after the cut.
    if (!std::exchange(ended_, true)) {
      main().Seal();
      main().Add(format::Mark{.time = kStart + 2 * kCut, .name = {"end", 3}});
    }
    EXPECT_TRUE(file_.Write(directory_ / "100.1.vrl"));
    auto opened = trace::LiveTrace::Open(directory_, directory_, {});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    auto& trace = static_cast<trace::LiveTrace&>(**opened);
    std::vector<CompactionPlan> plans(1);
    plans[0].cut_ns = static_cast<int64_t>(kStart + kCut);
    ChooseChunks(trace, plans.data());
    std::vector<std::vector<int64_t>> of_device(trace.devices().size());
    for (const int64_t instant : instants)
      of_device.at(0).push_back(static_cast<int64_t>(kStart) + instant);
    CompactionPlanner planner(trace, of_device, &plans);
    EXPECT_TRUE(
        trace.ForEachEvent([&](std::span<const trace::Event> events) { planner.Apply(events); })
            .ok());
    planner.Finish();
    plan_ = std::move(plans[0]);
    std::vector<std::string> kept;
    origins_.clear();
    for (size_t i = 0; i < plan_.streams.size(); ++i)
      AddKept(trace.files()[0], trace.files()[0].streams()[i], plan_.streams[i], &kept);
    return kept;
  }

  const fs::path directory_ =
      fs::temp_directory_path() / ("planner_test." + std::to_string(getpid()) + ".vram.d");
  trace::testing::LiveFileBuilder file_{{.sealed_tails = true}};
  CompactionPlan plan_;
  std::vector<std::string> origins_;  // of what is kept: "BlockAlloc 10: phase, end"

 private:
  bool ended_ = false;

  void AddKept(const trace::LiveFile& file,
               const std::vector<trace::ChunkRef>& chunks,
               const StreamPlan& plan,
               std::vector<std::string>* kept) {
    uint32_t number = 0;
    for (size_t i = 0; i < plan.chunks; ++i) {
      const auto records = file.Records(chunks[i]);
      const uint8_t* in = records.data();
      const uint8_t* const end = in + records.size();
      format::DeltaState delta;
      for (format::RawRecord raw; in != end && format::NextRecord(&in, end, &raw); ++number) {
        TextOf text;
        switch (raw.type) {
#define VRAMSCOPE_RECORD(Name, id, doc)                \
  case id: {                                           \
    format::Name record;                               \
    ASSERT_TRUE(format::Decode(raw, &delta, &record)); \
    text.text = #Name;                                 \
    format::VisitFields(text, std::as_const(record));  \
    break;                                             \
  }
#include "format/records.def"
        }
        if (!plan.keep[number])
          continue;
        kept->push_back(text.text);
        if (const auto origin = plan.origins.find(number); origin != plan.origins.end())
          origins_.push_back(
              fmt::format("{}: {}, {}", text.text, origin->second.phase, origin->second.end));
      }
    }
    EXPECT_EQ(number, plan.records);
  }
};

TEST_F(PlannerTest, Pair_NoInstantBetween_IsLeftOutAndCounted) {
  Alloc(100, 0x10, 512);
  Alloc(200, 0x20, 1024);
  Free(300, 0x10);
  EXPECT_THAT(Kept(), ElementsAre("BlockAlloc 20"));
  EXPECT_EQ(plan_.compacted.count, 1u);
  EXPECT_EQ(plan_.compacted.bytes, 512u);
  EXPECT_TRUE(plan_.has_chunks());
}

TEST_F(PlannerTest, Pair_InstantBetween_IsKept) {
  for (const uint64_t begin : {100U, 1100U, 2100U}) {
    Alloc(begin, 0x10);
    Free(begin + 500, 0x10);
  }
  EXPECT_THAT(Kept({1100, 2600}), ElementsAre("BlockAlloc 10", "BlockFree 10"))
      << "from its begin to just before its end";
  EXPECT_EQ(plan_.compacted.count, 2u);
}

TEST_F(PlannerTest, Pair_FreeInAChunkThatStays_IsKept) {
  Alloc(100, 0x10);
  Alloc(200, 0x20);
  Free(300, 0x20);
  main().Seal();
  Free(kCut + 100, 0x10);
  EXPECT_THAT(Kept(), ElementsAre("BlockAlloc 10"));
  EXPECT_EQ(plan_.streams[0].chunks, 1u);
}

TEST_F(PlannerTest, Chunk_EndsAfterTheCut_KeepsAllThatIsLater) {
  Alloc(100, 0x10);
  Free(200, 0x10);
  Alloc(kCut + 100, 0x10);
  Free(kCut + 200, 0x10);
  EXPECT_THAT(Kept(), ElementsAre("BlockAlloc 10", "BlockFree 10"));
  EXPECT_EQ(plan_.compacted.count, 1u);
}

TEST_F(PlannerTest, Free_OfWhatWasNeverSeen_IsKept) {
  Free(100, 0x10);
  EXPECT_THAT(Kept(), ElementsAre("BlockFree 10"));
}

// It ends no block, so it is not half of a pair.
TEST_F(PlannerTest, Free_Damaged_IsKept) {
  Alloc(100, 0x10);
  Free(200, 0);
  main().Add(format::BlockFree{.time = kStart + 300, .address = 0x10, .device = 42});
  Free(400, 0x10);
  EXPECT_THAT(Kept(), ElementsAre("BlockFree 0", "BlockFree 10"));
  EXPECT_THAT(plan_.streams[0].keep, ElementsAre(false, true, true, false));
  EXPECT_EQ(plan_.compacted.count, 1u);
}

// The ledger ends the first where the second begins: without the second, the first would stay live.
TEST_F(PlannerTest, AddressGivenAgainWithoutAFree_KeepsBothWhereTheFirstIsKept) {
  Alloc(100, 0x10);
  Alloc(200, 0x10);
  Free(300, 0x10);
  EXPECT_THAT(Kept(), IsEmpty());
  EXPECT_EQ(plan_.compacted.count, 2u);
  EXPECT_THAT(Kept({150}), ElementsAre("BlockAlloc 10", "BlockAlloc 10", "BlockFree 10"));
}

TEST_F(PlannerTest, Exit_BeforeTheCut_EndsWhatLives) {
  Alloc(100, 0x10);
  Alloc(200, 0x20);
  trace::testing::LiveFileBuilder launcher(
      {.pid = 1, .writer = format::WriterKind::kLauncher, .sealed_tails = true});
  launcher.Stream(1).Add(format::ProcessExit{.time = kStart + 300, .pid = 100, .status = 0});
  ASSERT_TRUE(launcher.Write(directory_ / "launcher.vrl"));
  EXPECT_TRUE(file_.Write(directory_ / "100.1.vrl"));
  auto opened = trace::LiveTrace::Open(directory_, directory_, {});
  ASSERT_TRUE(opened.ok());
  auto& trace = static_cast<trace::LiveTrace&>(**opened);
  std::vector<CompactionPlan> plans(2);
  for (size_t i = 0; i < plans.size(); ++i) {
    plans[i].file = i;
    plans[i].cut_ns = static_cast<int64_t>(kStart + kCut);
    ChooseChunks(trace, &plans[i]);
  }
  CompactionPlanner planner(trace, {}, &plans);
  ASSERT_TRUE(
      trace.ForEachEvent([&](std::span<const trace::Event> events) { planner.Apply(events); })
          .ok());
  planner.Finish();
  EXPECT_EQ(plans[1].compacted.count, 2u);
  EXPECT_THAT(plans[1].streams[0].keep, ElementsAre(false, false));
}

TEST_F(PlannerTest, Names_GoWithTheirBlock) {
  Alloc(100, 0x10);
  Name(110, 0x10, NameKind::kParameter, "weight");
  Name(120, 0x10, NameKind::kParameter, "weight");  // said again
  Name(130, 0x10, NameKind::kTag, "first");
  Name(140, 0x10, NameKind::kTag, "second");  // instead of the first
  Alloc(200, 0x20);
  Name(210, 0x20, NameKind::kTag, "gone");
  Free(300, 0x20);
  EXPECT_THAT(Kept(), ElementsAre("BlockAlloc 10", "Name 10", "Name 10"));
  EXPECT_THAT(Kept({135}), ElementsAre("BlockAlloc 10", "Name 10", "Name 10", "Name 10"))
      << "the first tag was the block's at an instant that is kept";
}

TEST_F(PlannerTest, Name_InAChunkThatStays_KeepsItsBlock) {
  const uint64_t name = main().String("late");
  main().Seal();
  main().Add(format::Name{.time = kStart + kCut, .address = 0x10, .device = -1, .name = name});
  auto& other = file_.Stream(2);
  other.Add(format::BlockAlloc{.time = kStart + 100, .address = 0x10, .size = 1, .device = -1});
  other.Add(format::BlockFree{.time = kStart + kCut, .address = 0x10, .device = -1});
  EXPECT_THAT(Kept(), ElementsAre("BlockAlloc 10", "BlockFree 10"));
}

TEST_F(PlannerTest, Name_OfNoBlock_IsKeptWhereItIsNew) {
  Name(100, 0x10, NameKind::kPool, "pool");
  Name(110, 0x10, NameKind::kPool, "pool");
  Name(120, 0x10, NameKind::kPool, "other");
  Name(130, 0x20, NameKind::kTag, "nothing is here");
  Name(140, 0x20, NameKind::kTag, "nothing is here");
  EXPECT_THAT(Kept(), ElementsAre("Name 10", "Name 10", "Name 20"));
}

// A block shows that what the driver gave is a segment, whose free bytes are cached.
TEST_F(PlannerTest, FirstBlockOfWhatTheDriverGave_IsKept) {
  main().Add(format::Device{.device = 0, .total_bytes = 1 << 30, .uuid = {"u", 1}});
  main().Add(format::Alloc{
      .begin = kStart + 50, .end = kStart + 60, .device = 0, .address = 0x1000, .size = 0x1000});
  for (const uint64_t address : {0x1000U, 0x1200U, 0x3000U}) {
    Alloc(100 + address, address);
    Free(110 + address, address);
  }
  main().Add(format::Free{.begin = kStart + 50'000, .end = kStart + 50'010, .address = 0x1000});
  EXPECT_THAT(Kept(), ElementsAre("Alloc 1000", "BlockAlloc 1000", "BlockFree 1000", "Free 1000"));
  EXPECT_EQ(plan_.compacted.count, 2u);
}

TEST_F(PlannerTest, Figures_HoldUntilTheNext_SoOneBetweenInstantsIsEnough) {
  for (const uint64_t time : {100U, 200U, 300U, 400U, 500U})
    main().Add(format::AllocatorTotals{.time = kStart + time, .device = -1, .allocated = time});
  EXPECT_EQ(Kept().size(), 2u) << "the first, and the last";
  EXPECT_EQ(Kept({350}).size(), 3u) << "and that of 300";
  EXPECT_THAT(plan_.streams[0].keep, ElementsAre(true, false, true, false, true));
}

TEST_F(PlannerTest, Counters_KeepPeaks_AndWhatHoldsAtAnInstant) {
  Alloc(50, 0x10);  // of the device whose instants these are
  uint64_t time = 100;
  for (const int64_t bytes : {100, 104, 200, 40, 30, 20, 10}) {
    main().Add(format::NvtxCounter{
        .time = kStart + time, .counter = 7, .device = format::kNoDevice, .bytes = bytes});
    time += 100;
  }
  Kept();
  EXPECT_THAT(plan_.streams[0].keep,
              ElementsAre(true, true, false, true, false, false, false, true));
  Kept({450});
  EXPECT_THAT(plan_.streams[0].keep,
              ElementsAre(true, true, false, true, true, false, false, true));
}

// A sample is compared with the ledger at the instant, from both sides of it.
TEST_F(PlannerTest, Samples_OnBothSidesOfAnInstant_AreKept) {
  for (const uint64_t time : {100U, 200U, 300U, 400U, 500U, 600U})
    main().Add(format::DeviceSample{.begin = kStart + time, .end = kStart + time, .device = -1});
  EXPECT_EQ(Kept().size(), 2u) << "the first, and the last";
  EXPECT_EQ(Kept({350}).size(), 4u);
  EXPECT_THAT(plan_.streams[0].keep, ElementsAre(true, false, true, true, false, true));
}

TEST_F(PlannerTest, Step_UnderWayAtTheCut_IsKept) {
  Step(100, format::StepKind::kBegin);
  Step(200, format::StepKind::kEnd);
  Step(300, format::StepKind::kBegin);
  Kept();
  EXPECT_THAT(plan_.streams[0].keep, ElementsAre(false, false, true));
}

TEST_F(PlannerTest, Marks_AreLeftOut) {
  main().Add(format::Mark{.time = kStart + 100, .name = {"iteration", 9}});
  EXPECT_THAT(Kept(), IsEmpty());
}

TEST_F(PlannerTest, Marks_ThatBeginAnotherPhase_AreKept) {
  main().Add(format::Mark{.time = kStart + 100, .name = {"phase:load", 10}});
  main().Add(format::Mark{.time = kStart + 200, .name = {"phase:load", 10}});
  main().Add(format::Mark{.time = kStart + 300, .name = {"phase:serve", 11}});
  Kept();
  EXPECT_THAT(plan_.streams[0].keep, ElementsAre(true, false, true));
}

TEST_F(PlannerTest, Origin_SaysThePhaseAndWhetherTheBlockOutlivedIt) {
  using format::OriginEnd;
  const uint64_t step = main().PyFrame(0, "torch/optim/adam.py", "Adam.step", 10);
  Step(50, format::StepKind::kBegin);
  Alloc(100, 0x10, 512, step);  // outlives the step
  Alloc(110, 0x20, 512, step);  // ends within it
  Free(120, 0x20);
  Step(200, format::StepKind::kEnd);
  Alloc(300, 0x30);
  Step(350, format::StepKind::kBegin);
  Alloc(400, 0x40, 512, step);  // lives during an unfinished step
  const auto text = [](const char* record, resolve::Phase phase, OriginEnd end) {
    return fmt::format("{}: {}, {}", record, static_cast<int>(phase), static_cast<int>(end));
  };
  Kept({115});
  EXPECT_THAT(origins_,
              ElementsAre(text("BlockAlloc 10", resolve::Phase::kOptimizer, OriginEnd::kOutlived),
                          text("BlockAlloc 20", resolve::Phase::kOptimizer, OriginEnd::kWithin),
                          text("BlockAlloc 30", resolve::Phase::kOther, OriginEnd::kOpen),
                          text("BlockAlloc 40", resolve::Phase::kOptimizer, OriginEnd::kOpen)));
  EXPECT_TRUE(plan_.knows_phases);
  EXPECT_TRUE(plan_.has_python);
}

}  // namespace
}  // namespace vramscope::compact
