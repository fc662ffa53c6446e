// SPDX-License-Identifier: Apache-2.0
#include "pipeline/compact/compaction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "format/decoder.h"
#include "trace/testing/live_file_builder.h"

namespace vramscope::compact {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::SizeIs;
using trace::kStart;
using trace::testing::LiveFileBuilder;

constexpr uint64_t kPage = format::kPageBytes;

format::BlockAlloc Alloc(uint64_t time, uint64_t address, uint64_t stack = 0) {
  return {.time = kStart + time, .address = address, .size = 512, .device = -1, .stack = stack};
}

class CompactionTest : public ::testing::Test {
 protected:
  CompactionTest() { fs::create_directories(directory_); }
  ~CompactionTest() override { fs::remove_all(directory_); }

  trace::LiveFile Open() {
    trace::LossCounter losses;
    auto file = trace::LiveFile::Open(path_, &losses);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return std::move(*file);
  }
  // A plan of this many chunks of each stream that keeps all of their records, or none.
  static CompactionPlan PlanOf(const trace::LiveFile& file, size_t chunks, bool keep) {
    CompactionPlan plan;
    plan.cut_ns = static_cast<int64_t>(kStart + 1'000'000);
    for (const std::vector<trace::ChunkRef>& stream : file.streams()) {
      StreamPlan& of = plan.streams.emplace_back();
      if (stream.front().stream == format::kPastStream)
        continue;
      of.chunks = chunks;
      for (size_t i = 0; i < chunks; ++i) {
        of.chunk_records.push_back(
            static_cast<uint32_t>(Records<format::Anchor>({}, file, stream[i])));
        of.records += of.chunk_records.back();
      }
      of.keep.resize(of.records, keep);
    }
    return plan;
  }
  // Puts the past file beside the live file, as the compaction does.
  CompactionFile Write(const CompactionPlan& plan) {
    const trace::LiveFile file = Open();
    CompactionFile past = MakePastFile(file, ClockOfChunks(file), plan);
    std::ofstream(trace::PastPathOf(path_), std::ios::binary)
        .write(reinterpret_cast<const char*>(past.bytes.data()),
               static_cast<std::streamsize>(past.bytes.size()));
    return past;
  }
  // Calls visit(record) for those of a chunk that are of one kind; how many there are of any.
  template <class Record>
  static size_t Records(const std::function<void(const Record&)>& visit,
                        const trace::LiveFile& file,
                        const trace::ChunkRef& chunk) {
    const auto records = file.Records(chunk);
    const uint8_t* in = records.data();
    const uint8_t* const end = in + records.size();
    format::DeltaState delta{.time = chunk.base_ticks};
    size_t count = 0;
    for (format::RawRecord raw; in != end && format::NextRecord(&in, end, &raw); ++count) {
      switch (raw.type) {
#define VRAMSCOPE_RECORD(Name, id, doc)                   \
  case id: {                                              \
    format::Name record;                                  \
    EXPECT_TRUE(format::Decode(raw, &delta, &record));    \
    if constexpr (std::is_same_v<format::Name, Record>) { \
      if (visit)                                          \
        visit(record);                                    \
    }                                                     \
    break;                                                \
  }
#include "format/records.def"
      }
    }
    return count;
  }
  // All records of a kind that the file and its past have, with what `text` makes of each.
  template <class Record, class Text>
  auto All(Text text) {
    std::vector<decltype(text(Record{}))> all;
    const trace::LiveFile file = Open();
    for (const std::vector<trace::ChunkRef>& stream : file.streams()) {
      for (const trace::ChunkRef& chunk : stream)
        Records<Record>([&](const Record& record) { all.push_back(text(record)); }, file, chunk);
    }
    return all;
  }
  std::vector<uint64_t> Addresses() {
    return All<format::BlockAlloc>([](const auto& e) { return e.address; });
  }
  std::vector<std::string> Strings() {
    return All<format::String>([](const auto& e) { return TextOf(e.text); });
  }
  static std::string TextOf(const format::Bytes& bytes) {
    return {bytes.data, bytes.size};
  }

  const fs::path directory_ =
      fs::temp_directory_path() / ("compaction_test." + std::to_string(getpid()) + ".vram.d");
  const std::string path_ = directory_ / "100.1.vrl";
};

// Two streams of three chunks, which take turns and have a block each.
LiveFileBuilder TwoStreams() {
  LiveFileBuilder file({.sealed_tails = true});
  for (uint64_t i = 0; i < 6; ++i) {
    auto& stream = file.Stream(1 + i % 2);
    stream.Seal();
    stream.Add(Alloc(100 * i, 0x10 * (i + 1)));
  }
  return file;
}

TEST_F(CompactionTest, ChooseOldest_TakesChunksByTheirEnd_UntilThereAreEnoughBytes) {
  ASSERT_TRUE(TwoStreams().Write(path_));
  std::vector<trace::LiveFile> files;
  files.push_back(Open());
  const auto chosen = [&](uint64_t bytes, int64_t until_ns) {
    const CompactionPlan plan = ChooseOldest(files, bytes, until_ns).front();
    return std::pair(plan.streams[0].chunks, plan.streams[1].chunks);
  };
  EXPECT_THAT(chosen(1, INT64_MAX), Pair(1, 0));
  EXPECT_THAT(chosen(kPage, INT64_MAX), Pair(1, 0));
  EXPECT_THAT(chosen(kPage + 1, INT64_MAX), Pair(1, 1));
  EXPECT_THAT(chosen(3 * kPage, INT64_MAX), Pair(2, 1));
  EXPECT_THAT(chosen(100 * kPage, INT64_MAX), Pair(2, 2)) << "a thread may write to its last one";
  EXPECT_THAT(chosen(100 * kPage, static_cast<int64_t>(kStart + 300)), Pair(1, 1));
  const CompactionPlan plan = ChooseOldest(files, 3 * kPage, INT64_MAX).front();
  EXPECT_EQ(plan.cut_ns, static_cast<int64_t>(kStart + 400)) << "where the last of them ends";
  EXPECT_THAT(plan.streams[0].chunk_records, ElementsAre(1, 1));
  EXPECT_EQ(plan.streams[0].records, 2u);
  EXPECT_THAT(plan.streams[0].keep, ElementsAre(false, false));
}

TEST_F(CompactionTest, OldChunks_AreThoseThatNobodyWrites) {
  ASSERT_TRUE(TwoStreams().Write(path_));
  const auto ends = [&](const trace::OpenOptions& options) {
    auto opened = trace::LiveTrace::Open(directory_, directory_, options);
    EXPECT_TRUE(opened.ok());
    std::vector<int64_t> ends_ns;
    for (const OldChunk& chunk : FindOldChunks(static_cast<trace::LiveTrace&>(**opened))) {
      EXPECT_EQ(chunk.size_bytes, kPage);
      ends_ns.push_back(chunk.end_ns - static_cast<int64_t>(kStart));
    }
    return ends_ns;
  };
  EXPECT_THAT(ends({}), ElementsAre(200, 300, 400, 400, 500, 500)) << "the process has ended";
  EXPECT_THAT(ends({.until_ns = kStart + 350, .running = {100}}), ElementsAre(200, 300));
}

TEST_F(CompactionTest, ChooseChunks_TakesThoseThatBeginBeforeTheCut) {
  ASSERT_TRUE(TwoStreams().Write(path_));
  auto opened = trace::LiveTrace::Open(directory_, directory_, {});
  ASSERT_TRUE(opened.ok());
  CompactionPlan plan;
  plan.cut_ns = static_cast<int64_t>(kStart + 300);
  ChooseChunks(static_cast<trace::LiveTrace&>(**opened), &plan);
  EXPECT_THAT(plan.streams, SizeIs(2));
  EXPECT_EQ(plan.streams[0].chunks, 2u);
  EXPECT_EQ(plan.streams[1].chunks, 1u);
  EXPECT_TRUE(plan.has_chunks());
  CompactionPlan none;
  none.cut_ns = static_cast<int64_t>(kStart);
  ChooseChunks(static_cast<trace::LiveTrace&>(**opened), &none);
  EXPECT_FALSE(none.has_chunks());
}

TEST_F(CompactionTest, PastFile_ReadsAsTheLiveFile_WithoutWhatIsNotKept) {
  ASSERT_TRUE(TwoStreams().Write(path_));
  CompactionPlan plan = PlanOf(Open(), 2, true);
  plan.streams[0].keep[1] = false;  // 0x30
  const CompactionFile past = Write(plan);
  EXPECT_THAT(Addresses(), ElementsAre(0x10, 0x50, 0x20, 0x40, 0x60));
  EXPECT_THAT(past.ranges, ElementsAre(Pair(kPage, 5 * kPage))) << "four chunks, one after another";
  const auto* const header = reinterpret_cast<const format::FileHeader*>(past.bytes.data());
  EXPECT_EQ(header->writer, static_cast<uint16_t>(format::WriterKind::kPast));
  EXPECT_EQ(header->end_bytes, past.bytes.size());
  EXPECT_EQ(header->chunk_count, 3u) << "one a stream, and the past's own";
  // What the live file still has of these chunks is not read.
  std::fstream live(path_, std::ios::in | std::ios::out | std::ios::binary);
  live.seekp(static_cast<std::streamoff>(kPage))
      .write(std::string(4 * kPage, '\0').data(), static_cast<std::streamsize>(4 * kPage));
  live.close();
  EXPECT_THAT(Addresses(), ElementsAre(0x10, 0x50, 0x20, 0x40, 0x60));
}

TEST_F(CompactionTest, NextPast_GoesOnFromTheOneBefore) {
  ASSERT_TRUE(TwoStreams().Write(path_));
  Write(PlanOf(Open(), 1, true));
  CompactionPlan plan = PlanOf(Open(), 2, true);
  const CompactionFile past = Write(plan);
  EXPECT_THAT(past.ranges, ElementsAre(Pair(kPage, 5 * kPage)));
  EXPECT_THAT(Addresses(), ElementsAre(0x10, 0x30, 0x50, 0x20, 0x40, 0x60));
  EXPECT_THAT(All<format::PastStream>([](const auto& e) { return std::pair(e.stream, e.chunks); }),
              ElementsAre(Pair(1, 2), Pair(2, 2)));
}

TEST_F(CompactionTest, Losses_AreSummedUp) {
  LiveFileBuilder file({.sealed_tails = true});
  const auto lost = [](format::Loss loss, uint64_t count) {
    return format::Lost{.loss = static_cast<uint64_t>(loss), .count = count, .bytes = 10 * count};
  };
  for (const uint64_t count : {1U, 2U, 4U}) {
    file.Stream(1).Add(lost(format::Loss::kRecordTooLarge, count));
    file.Stream(1).Add(Alloc(100 * count, 0x10 * count));
    file.Stream(1).Seal();
  }
  ASSERT_TRUE(file.Write(path_));
  const auto sums = [&] {
    return All<format::Lost>([](const auto& e) {
      return std::tuple(static_cast<format::Loss>(e.loss), e.count, e.bytes);
    });
  };
  CompactionPlan plan = PlanOf(Open(), 1, false);
  plan.compacted.count = 1;
  plan.compacted.bytes = 512;
  Write(plan);
  EXPECT_EQ(sums().size(), 4u) << "two of the live file's own";
  plan = PlanOf(Open(), 3, false);
  plan.compacted.count = plan.dropped.count = 2;
  plan.compacted.bytes = plan.dropped.bytes = 1024;
  Write(plan);
  EXPECT_THAT(sums(), ElementsAre(std::tuple(format::Loss::kRecordTooLarge, 7, 70),
                                  std::tuple(format::Loss::kCompacted, 3, 1536),
                                  std::tuple(format::Loss::kDropped, 2, 1024)));
}

TEST_F(CompactionTest, Past_SaysWhatWasKnown) {
  ASSERT_TRUE(TwoStreams().Write(path_));
  CompactionPlan plan = PlanOf(Open(), 1, false);
  plan.iterations = 12;
  plan.by_marks = plan.has_python = true;
  Write(plan);
  EXPECT_THAT(All<format::Past>([&](const auto& e) {
                return std::tuple(e.time, e.iterations, e.by_marks, e.knows);
              }),
              ElementsAre(std::tuple(kStart + 1'000'000, 12, 1, 2)));
}

// The writer may refer to each definition that its tables can hold; of older ones it cannot.
TEST_F(CompactionTest, Definitions_AreThoseOfKeptRecordsAndThoseThatTheWriterKnows) {
  constexpr size_t kKnown = 3072;
  LiveFileBuilder file({.sealed_tails = true});
  auto& main = file.Stream(1);
  const uint64_t kept = main.PyFrame(0, "kept.py", "Kept", 1);
  main.String("left");
  main.Add(Alloc(100, 0x10, kept));
  for (size_t i = 0; i < kKnown; ++i) {
    main.String("text " + std::to_string(i));
    main.PyCode("text 0", "text 0", i);
  }
  main.Seal();
  main.Add(Alloc(200, 0x20));
  ASSERT_TRUE(file.Write(path_));
  const trace::LiveFile live = Open();
  CompactionPlan plan = PlanOf(live, live.streams()[0].size() - 1, false);
  std::vector<bool>& keep = plan.streams[0].keep;
  std::fill_n(keep.begin(), 6, true);  // up to the block
  Write(plan);
  const std::vector<std::string> strings = Strings();
  EXPECT_THAT(strings, SizeIs(kKnown + 2));
  EXPECT_EQ(strings[0], "kept.py");
  EXPECT_EQ(strings[1], "Kept");
  EXPECT_EQ(strings[2], "text 0");
  EXPECT_EQ(All<format::BlockAlloc>([](const auto& e) { return e.stack; })[0], kept);
}

TEST_F(CompactionTest, ThreadAndScope_AreSaidAgainWhereTheyAreNeeded) {
  LiveFileBuilder file({.sealed_tails = true});
  auto& main = file.Stream(1);
  main.Thread(7, "first");
  main.Add(format::Scope{.id = 100, .parent = 0, .name = main.String("solve")});
  main.Add(format::ScopeIs{.scope = 100});
  main.Add(Alloc(100, 0x10));  // left out
  main.Seal();
  main.Thread(8, "second");
  main.Add(Alloc(200, 0x20));
  main.Add(format::ScopeIs{.scope = 100});
  main.Add(Alloc(300, 0x30));
  main.Add(format::ScopeIs{.scope = 100});
  main.Add(Alloc(400, 0x40));
  main.Seal();
  main.Add(Alloc(500, 0x50));
  ASSERT_TRUE(file.Write(path_));
  CompactionPlan plan = PlanOf(Open(), 2, true);
  const auto first = std::find(plan.streams[0].keep.begin(), plan.streams[0].keep.end(), true);
  std::fill_n(first, 5, false);
  Write(plan);
  EXPECT_THAT(Addresses(), ElementsAre(0x20, 0x30, 0x40, 0x50));
  EXPECT_THAT(All<format::Thread>([](const auto& e) { return std::pair(e.tid, TextOf(e.name)); }),
              ElementsAre(Pair(8, "second")));
  EXPECT_THAT(All<format::ScopeIs>([](const auto& e) { return e.scope; }), ElementsAre(100))
      << "once a chunk";
}

TEST_F(CompactionTest, Descriptions_AreKeptOnce_AndImagesWhereTheyChange) {
  LiveFileBuilder file({.sealed_tails = true});
  auto& main = file.Stream(1);
  const auto image = [](const char* path) {
    return format::Image{.begin = 0x1000, .end = 0x2000, .path = {path, 2}};
  };
  for (int i = 0; i < 2; ++i) {
    main.Add(format::Runtime{.key = {"python", 6}, .value = {"3.12", 4}});
    main.Add(image("/a"));
  }
  main.Add(image("/b"));
  main.Add(image("/a"));
  main.Add(Alloc(100, 0x10));
  main.Seal();
  main.Add(Alloc(200, 0x20));
  ASSERT_TRUE(file.Write(path_));
  Write(PlanOf(Open(), 1, false));
  EXPECT_THAT(All<format::Runtime>([](const auto& e) { return TextOf(e.value); }),
              ElementsAre("3.12"));
  EXPECT_THAT(All<format::Image>([](const auto& e) { return TextOf(e.path); }),
              ElementsAre("/a", "/b", "/a"));
}

// Between two pairs of clocks times are interpolated: what is kept must not move.
TEST_F(CompactionTest, Ticks_HaveAPairOfClocksBesideWhatIsKept) {
  LiveFileBuilder file({.sealed_tails = true, .ticks_per_ns = 2.5});
  auto& main = file.Stream(1);
  const auto alloc = [&](uint64_t ns, uint64_t address) {
    return format::BlockAlloc{
        .time = file.Ticks(kStart + ns), .address = address, .size = 1, .device = -1};
  };
  main.Add(alloc(100, 0x10));
  main.Add(alloc(200, 0x20));
  main.Add(alloc(5'000'000'000, 0x30));
  main.Seal();
  main.Add(alloc(6'000'000'000, 0x40));
  ASSERT_TRUE(file.Write(path_));
  const trace::LiveFile before = Open();
  const trace::TickClock clock = ClockOfChunks(before);
  Write(PlanOf(before, 1, true));
  EXPECT_THAT(All<format::Anchor>([&](const auto& e) {
                return static_cast<int64_t>(e.monotonic_ns) - clock.ToNs(e.time);
              }),
              ElementsAre(0, 0))
      << "of the first, and of the third";
  EXPECT_THAT(Addresses(), ElementsAre(0x10, 0x20, 0x30, 0x40));
}

TEST_F(CompactionTest, Origins_AreWrittenBeforeTheirRecord_AndCarriedOn) {
  LiveFileBuilder file({.sealed_tails = true});
  auto& main = file.Stream(1);
  const uint64_t stack = main.PyFrame(0, "model.py", "forward", 42);
  main.Add(Alloc(100, 0x10, stack));
  main.Add(Alloc(200, 0x20, stack));
  main.Seal();
  main.Add(Alloc(300, 0x30));
  main.Seal();
  main.Add(Alloc(400, 0x40));
  ASSERT_TRUE(file.Write(path_));
  auto opened = trace::LiveTrace::Open(directory_, directory_, {});
  ASSERT_TRUE(opened.ok());
  auto& trace = static_cast<trace::LiveTrace&>(**opened);
  tables::StackId forward;
  ASSERT_TRUE(trace
                  .ForEachEvent([&](std::span<const trace::Event> events) {
                    if (events.front().Is<trace::BlockAlloc>())
                      forward = events.front().As<trace::BlockAlloc>().stack;
                  })
                  .ok());
  CompactionPlan plan;
  plan.cut_ns = static_cast<int64_t>(kStart + 250);
  ChooseChunks(trace, &plan);
  StreamPlan& of = plan.streams[0];
  of.keep.assign(of.records, true);
  of.origins[of.records - 1] = {.phase = 3, .end = 1, .forward = forward};
  const CompactionFile past = MakePastFile(trace.files()[0], *trace.context(0).clock, plan, &trace);
  std::ofstream(trace::PastPathOf(path_), std::ios::binary)
      .write(reinterpret_cast<const char*>(past.bytes.data()),
             static_cast<std::streamsize>(past.bytes.size()));
  const auto origins = [&] {
    return All<format::PastOrigin>([](const auto& e) { return std::pair(e.phase, e.end); });
  };
  EXPECT_THAT(origins(), ElementsAre(Pair(3, 1)));
  EXPECT_THAT(All<format::PyCode>([](const auto& e) { return e.first_line; }), ElementsAre(42, 42))
      << "the forward has a code object of its own";
  opened->reset();
  for (const bool carries : {true, false}) {
    plan = PlanOf(Open(), 2, true);
    plan.carries_origins = carries;
    Write(plan);
    EXPECT_THAT(Addresses(), ElementsAre(0x10, 0x20, 0x30, 0x40));
    EXPECT_THAT(origins(), SizeIs(carries ? 1 : 0));
  }
}

}  // namespace
}  // namespace vramscope::compact
