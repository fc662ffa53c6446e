// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "format/memory_words.h"
#include "tables/reader.h"
#include "tables/table_checks.h"
#include "tables/testing/random_tables.h"
#include "tables/writer.h"
#include "util/budget.h"

namespace vramscope::tables {
namespace {

using ::testing::HasSubstr;
using testing::MemoryFile;
using testing::RandomAllocations;
using testing::RandomTables;
using Random = std::mt19937_64;

void ExpectEqual(const Tables& a, const Tables& b) {
  EXPECT_EQ(a.session.name, b.session.name);
  EXPECT_EQ(a.session.version, b.session.version);
  EXPECT_EQ(a.session.begin_ns, b.session.begin_ns);
  EXPECT_EQ(a.session.end_ns, b.session.end_ns);
  EXPECT_EQ(a.session.begin_wall_ns, b.session.begin_wall_ns);
  EXPECT_EQ(a.session.event_count, b.session.event_count);
  ASSERT_EQ(a.strings.size(), b.strings.size());
  for (uint32_t i = 0; i < a.strings.size(); ++i)
    EXPECT_EQ(a.strings[StringId{i}], b.strings[StringId{i}]);
  // The same order of tables on both sides.
  std::vector<const void*> others;
  Tables::ForEach(b, [&](const auto& rows) { others.push_back(&rows); });
  size_t next = 0;
  Tables::ForEach(a, [&]<class Row>(const std::vector<Row>& rows) {
    const auto& other = *static_cast<const std::vector<Row>*>(others[next++]);
    ASSERT_EQ(rows.size(), other.size()) << TableOf<Row>::kName;
    for (size_t i = 0; i < rows.size(); ++i)
      ASSERT_TRUE(rows[i] == other[i]) << TableOf<Row>::kName << " " << i;
  });
}

std::unique_ptr<Recording> Reopen(const MemoryFile& file) {
  auto recording = OpenDescriptor(file.fd(), "x.vram");
  EXPECT_TRUE(recording.ok()) << recording.status().message();
  return recording ? std::move(*recording) : nullptr;
}

std::string ErrorOf(const std::string& bytes) {
  const MemoryFile file(bytes);
  auto recording = OpenDescriptor(file.fd(), "x.vram");
  return recording ? "" : recording.status().message();
}

std::vector<AllocationRow> ReadAll(const Recording& recording) {
  std::vector<AllocationRow> rows;
  for (size_t frame = 0; frame < recording.frame_count(); ++frame) {
    AllocationFrame columns;
    const util::Status status = recording.Read(frame, kAllColumns, &columns);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(columns.rows, recording.zone(frame).rows);
    for (size_t i = 0; i < columns.rows && status.ok(); ++i) {
      rows.push_back({columns.begin_ns[i], columns.end_ns[i], columns.alloc_ns[i],
                      columns.address[i], columns.bytes[i], columns.rounding_bytes[i],
                      SiteId{columns.site[i]}, SegmentId{columns.segment[i]}});
    }
  }
  return rows;
}

void ExpectSameRows(std::vector<AllocationRow> a, std::vector<AllocationRow> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(a[i] == b[i]) << i;
}

// Two iterations of a training, as its allocations end: activations, and temporaries between them.
std::vector<AllocationRow> Training(int64_t iterations) {
  std::vector<AllocationRow> rows;
  for (int64_t i = 0; i < iterations; ++i) {
    const int64_t begin_ns = 1'000'000'000 + i * 20'000'000;
    for (int64_t layer = 0; layer < 20; ++layer) {
      const int64_t forward_ns = begin_ns + layer * 100'000;
      const int64_t backward_ns = begin_ns + 10'000'000 - layer * 200'000;
      const auto id = static_cast<uint32_t>(layer);
      rows.push_back({forward_ns, backward_ns, forward_ns, 0x7000u + id, 4096u + id, id,
                      SiteId{1 + id % 3}, SegmentId{1}});
      rows.push_back({backward_ns + 10, backward_ns + 3000, backward_ns + 5, 0x9000u, 512, 0,
                      SiteId{4}, SegmentId{1}});
    }
  }
  rows.push_back({500, kNever, 500, 1, 1u << 30, 0, SiteId{5}, SegmentId{}});
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.end_ns < b.end_ns; });
  return rows;
}

Tables TrainingTables() {
  Tables tables;
  tables.accounts.resize(3);
  tables.segments.resize(2);
  tables.sites.resize(6);
  for (uint32_t site = 1; site < 6; ++site)
    tables.sites[site].account = AccountId{site == 5 ? 2u : 1u};
  return tables;
}

TEST(FileTest, EveryTableComesBack) {
  Random random(1);
  for (const uint32_t rows : {1u, 2u, 300u, 70'000u}) {
    const Tables tables = RandomTables(&random, rows);
    const std::vector<AllocationRow> allocations = RandomAllocations(&random, rows, rows);
    const MemoryFile file(testing::WriteFile(tables, allocations, 5000));
    const std::unique_ptr<Recording> recording = Reopen(file);
    ASSERT_NE(recording, nullptr);
    ExpectEqual(tables, recording->tables());
    EXPECT_EQ(recording->tables().session.path, "x.vram");
    EXPECT_EQ(recording->tables().session.file_bytes, file.Bytes().size());
    EXPECT_EQ(recording->tables().session.allocation_count, allocations.size());
    EXPECT_TRUE(recording->tables().session.finished);
    ExpectSameRows(ReadAll(*recording), allocations);
  }
}

TEST(FileTest, ExtremeValuesComeBack) {
  constexpr int64_t kMin = -kMaxTimeNs, kMax = kMaxTimeNs;
  constexpr uint64_t kAll = UINT64_MAX;
  Tables tables;
  tables.sites.resize(3);
  tables.strings.Add("");
  tables.strings.Add(std::string(kMaxTextBytes, 'x'));
  tables.strings.Add(std::string("\0\xff\n", 3));
  tables.steps = {
      {CounterId{}, kMin, INT64_MAX}, {CounterId{}, kMax, INT64_MIN}, {CounterId{}, 0, -1}};
  const std::vector<AllocationRow> allocations = {
      {kMin, kNever, kMax, kAll, kAll, kAll, SiteId{2}, SegmentId{}},
      {kMin, kMin, kMin, 0, 0, 0, SiteId{}, SegmentId{}},
      {kMax, kMax, kMin, kAll, 1, kAll, SiteId{1}, SegmentId{}},
      {-1, kMax - 1, 0, 1, kAll - 1, 0, SiteId{1}, SegmentId{}}};
  const MemoryFile file(testing::WriteFile(tables, allocations, 1000));
  const std::unique_ptr<Recording> recording = Reopen(file);
  ASSERT_NE(recording, nullptr);
  ExpectEqual(tables, recording->tables());
  ExpectSameRows(ReadAll(*recording), allocations);
}

TEST(FileTest, TimesThatNoClockShowsAreBounded) {
  Tables tables;
  tables.session.begin_ns = INT64_MIN;
  tables.session.end_ns = INT64_MAX;
  tables.marks = {{.time_ns = INT64_MAX}};
  tables.checkpointed = {{.begin_ns = INT64_MIN, .end_ns = kNever}};
  const MemoryFile file(
      testing::WriteFile(tables,
                         {{.begin_ns = INT64_MIN, .end_ns = kNever - 1, .alloc_ns = INT64_MIN},
                          {.begin_ns = INT64_MAX, .end_ns = kNever, .alloc_ns = INT64_MAX}},
                         1000));
  const std::unique_ptr<Recording> recording = Reopen(file);
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(recording->tables().session.begin_ns, -kMaxTimeNs);
  EXPECT_EQ(recording->tables().session.end_ns, kMaxTimeNs);
  EXPECT_EQ(recording->tables().marks.front().time_ns, kMaxTimeNs);
  EXPECT_EQ(recording->tables().checkpointed.front().begin_ns, -kMaxTimeNs);
  EXPECT_EQ(recording->tables().checkpointed.front().end_ns, kNever);
  ExpectSameRows(ReadAll(*recording),
                 {{.begin_ns = -kMaxTimeNs, .end_ns = kMaxTimeNs, .alloc_ns = -kMaxTimeNs},
                  {.begin_ns = kMaxTimeNs, .end_ns = kNever, .alloc_ns = kMaxTimeNs}});
}

TEST(FileTest, WordsOfANewerVersionSayLittle) {
  Tables tables;
  tables.sites.push_back({.part = format::Part{250},
                          .category = format::Category{250},
                          .phase = format::Phase{250},
                          .estimated = Estimated{250}});
  tables.devices.push_back({.kind = DeviceKind{3}});
  const MemoryFile file(testing::WriteFile(tables, {}, 1000));
  const std::unique_ptr<Recording> recording = Reopen(file);
  ASSERT_NE(recording, nullptr);
  const SiteRow& site = recording->tables().sites.at(1);
  EXPECT_EQ(site.part, format::Part::kAllocated);
  EXPECT_EQ(site.category, format::Category::kUnknown);
  EXPECT_EQ(site.phase, format::Phase::kNone);
  EXPECT_EQ(site.estimated, Estimated::kByFreeMemory);
  EXPECT_EQ(recording->tables().devices.at(1).kind, DeviceKind::kGpu);
}

TEST(FileTest, TablesThatKnowMoreTakeThePlaceOfThoseBefore) {
  const std::vector<AllocationRow> rows = Training(20);
  const MemoryFile file;
  Writer writer(file.fd(), "x.vram", {.rows_per_frame = 100});
  for (const AllocationRow& row : rows)
    ASSERT_TRUE(writer.Add(row).ok());
  Tables tables = TrainingTables();
  tables.strings.Add(std::string(5000, 'x') + "longer");
  ASSERT_TRUE(writer.Finish(tables).ok());
  ASSERT_NE(Reopen(file), nullptr);
  for (const size_t peaks : {size_t{1000}, size_t{2}}) {
    tables.peaks.resize(peaks, {.time_ns = 5});
    ASSERT_TRUE(writer.Finish(tables).ok());
    const std::unique_ptr<Recording> recording = Reopen(file);
    ASSERT_NE(recording, nullptr);
    ExpectEqual(recording->tables(), tables);
    ExpectSameRows(ReadAll(*recording), rows);
    EXPECT_EQ(writer.file_bytes(), file.Bytes().size());
  }
}

TEST(FileTest, ColumnsThatNobodyWantsAreNotRead) {
  const std::vector<AllocationRow> rows = Training(2);
  const MemoryFile file(testing::WriteFile(TrainingTables(), rows, 1000));
  const std::unique_ptr<Recording> recording = Reopen(file);
  ASSERT_NE(recording, nullptr);
  AllocationFrame all, frame;
  ASSERT_TRUE(recording->Read(0, kAllColumns | kShape, &all).ok());
  ASSERT_LT(all.shapes.size(), all.rows);
  for (size_t i = 0; i < all.rows; ++i) {
    const AllocationShape& shape = all.shapes.at(all.shape[i]);
    EXPECT_EQ(shape.bytes, all.bytes[i]);
    EXPECT_EQ(shape.rounding_bytes, all.rounding_bytes[i]);
    EXPECT_EQ(shape.site, all.site[i]);
    EXPECT_EQ(shape.segment, all.segment[i]);
  }
  const auto expect = [&](uint32_t wanted, uint32_t bit, const auto& column, const auto& full) {
    if ((wanted & bit) != 0)
      EXPECT_EQ(column, full) << wanted;
    else
      EXPECT_TRUE(column.empty()) << wanted;
  };
  for (uint32_t wanted = 0; wanted <= (kAllColumns | kShape); ++wanted) {
    ASSERT_TRUE(recording->Read(0, wanted, &frame).ok());
    EXPECT_EQ(frame.rows, all.rows);
    expect(wanted, kBeginNs, frame.begin_ns, all.begin_ns);
    expect(wanted, kEndNs, frame.end_ns, all.end_ns);
    expect(wanted, kAllocNs, frame.alloc_ns, all.alloc_ns);
    expect(wanted, kAddress, frame.address, all.address);
    expect(wanted, kBytes, frame.bytes, all.bytes);
    expect(wanted, kRoundingBytes, frame.rounding_bytes, all.rounding_bytes);
    expect(wanted, kSite, frame.site, all.site);
    expect(wanted, kSegment, frame.segment, all.segment);
    expect(wanted, kShape, frame.shape, all.shape);
    EXPECT_EQ(frame.shapes.empty(), (wanted & kShape) == 0) << wanted;
  }
}

TEST(FileTest, ZonesSayWhatIsInTheirFrames) {
  const std::vector<AllocationRow> rows = Training(50);
  const MemoryFile file(testing::WriteFile(TrainingTables(), rows, 100));
  const std::unique_ptr<Recording> recording = Reopen(file);
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(ReadAll(*recording).size(), rows.size());
  const Tables& tables = recording->tables();
  for (size_t i = 0; i < recording->frame_count(); ++i) {
    AllocationFrame frame;
    ASSERT_TRUE(recording->Read(i, kAllColumns, &frame).ok());
    const FrameZone& zone = recording->zone(i);
    EXPECT_EQ(zone.min_begin_ns, *std::min_element(frame.begin_ns.begin(), frame.begin_ns.end()));
    EXPECT_EQ(zone.max_begin_ns, *std::max_element(frame.begin_ns.begin(), frame.begin_ns.end()));
    EXPECT_EQ(zone.min_end_ns, *std::min_element(frame.end_ns.begin(), frame.end_ns.end()));
    EXPECT_EQ(zone.max_end_ns, *std::max_element(frame.end_ns.begin(), frame.end_ns.end()));
    for (uint32_t account = 0; account < tables.accounts.size(); ++account) {
      const bool has = std::any_of(frame.site.begin(), frame.site.end(), [&](uint32_t site) {
        return tables.sites[site].account.value == account;
      });
      EXPECT_EQ(zone.MayHoldAccount(AccountId{account}), has);
    }
  }
}

TEST(FileTest, AnInstantNeedsFewFrames) {
  const std::vector<AllocationRow> rows = Training(500);
  const MemoryFile file(testing::WriteFile(TrainingTables(), rows, 200));
  const std::unique_ptr<Recording> recording = Reopen(file);
  ASSERT_NE(recording, nullptr);
  ASSERT_GT(recording->frame_count(), size_t{100});
  Random random(1);
  for (int i = 0; i < 100; ++i) {
    const int64_t time_ns = 1'000'000'000 + static_cast<int64_t>(random() % 10'000'000'000);
    size_t frames = 0, live = 0;
    for (size_t f = 0; f < recording->frame_count(); ++f) {
      if (!recording->zone(f).MayHoldLiveAt(time_ns))
        continue;
      ++frames;
      AllocationFrame frame;
      ASSERT_TRUE(recording->Read(f, kBeginNs | kEndNs, &frame).ok());
      for (size_t row = 0; row < frame.rows; ++row)
        live += frame.begin_ns[row] <= time_ns && time_ns < frame.end_ns[row] ? size_t{1} : 0;
    }
    EXPECT_LE(frames, size_t{8});
    const auto expected = std::count_if(rows.begin(), rows.end(), [&](const AllocationRow& row) {
      return row.begin_ns <= time_ns && time_ns < row.end_ns;
    });
    EXPECT_EQ(live, static_cast<size_t>(expected));
  }
}

TEST(FileTest, FramesAreReadByManyThreads) {
  const std::vector<AllocationRow> rows = Training(200);
  const MemoryFile file(testing::WriteFile(TrainingTables(), rows, 100));
  const std::unique_ptr<Recording> recording = Reopen(file);
  ASSERT_NE(recording, nullptr);
  std::vector<std::vector<AllocationRow>> read(4);
  {
    std::vector<std::thread> threads;
    for (auto& into : read)
      threads.emplace_back([&recording, &into] { into = ReadAll(*recording); });
    for (std::thread& thread : threads)
      thread.join();
  }
  for (const auto& one : read)
    ExpectSameRows(one, rows);
}

TEST(FileTest, ARecordingOfATrainingIsSmall) {
  // Regular times, so this says little of real ones (bench/tables_bench.cc does): it finds columns
  // that are stored though they repeat.
  const std::vector<AllocationRow> rows = Training(2000);
  const std::string file = testing::WriteFile(TrainingTables(), rows, 32768);
  EXPECT_LT(file.size(), rows.size());
}

// Each of these compresses to next to nothing, and is more than a reader makes of so small a file.
TEST(FileTest, WhatIsWrittenCanBeRead) {
  Random random(8);
  Tables tables = RandomTables(&random, 2);
  const uint64_t rows = util::Budget::kBaseBytes / sizeof(SampleRow) + 200'000;
  tables.samples.assign(rows, SampleRow{.device = DeviceId{1}, .used_bytes = 1 << 20});
  const MemoryFile file;
  {
    Writer writer(file.fd(), "x.vram");
    ASSERT_TRUE(writer.Finish(tables).ok());
  }
  std::unique_ptr<Recording> recording = Reopen(file);
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(recording->tables().samples.size(), rows);
  EXPECT_LT(recording->tables().session.file_bytes, rows);

  // A long name that many rows have.
  tables.samples.clear();
  const StringId name = tables.strings.Add(std::string(100'000, 'n'));
  tables.marks.assign(5'000, MarkRow{.time_ns = 1, .name = name});
  const MemoryFile named;
  ASSERT_TRUE(Writer(named.fd(), "x.vram").Finish(tables).ok());
  recording = Reopen(named);
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(recording->tables().marks.size(), 5'000u);
  // Listed, it would take 200 GB.
  tables.marks.assign(2'000'000, MarkRow{.time_ns = 1, .name = name});
  const MemoryFile bomb;
  EXPECT_THAT(Writer(bomb.fd(), "x.vram").Finish(tables).message(), HasSubstr("x.vram: cannot be"));
}

TEST(FileTest, WhatCannotBeWrittenIsAnError) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  {
    Writer writer(full, "x.vram", {.rows_per_frame = 10});
    util::Status status;
    for (const AllocationRow& row : Training(50))
      status = writer.Add(row);
    EXPECT_THAT(writer.Finish(TrainingTables()).message(), HasSubstr("x.vram: cannot be written"));
  }
  close(full);
  MemoryFile file;
  Writer writer(file.fd(), "x.vram");
  EXPECT_TRUE(writer.Add({.begin_ns = 5, .end_ns = 5}).ok());
  (void)writer.Add({.begin_ns = 5, .end_ns = 4});
  EXPECT_THAT(writer.Finish(Tables()).message(), HasSubstr("ends before it begins"));
}

TEST(FileTest, AWriterThatIsNotFinishedLeavesNoRecording) {
  MemoryFile file;
  {
    Writer writer(file.fd(), "x.vram", {.rows_per_frame = 10});
    for (const AllocationRow& row : Training(50))
      ASSERT_TRUE(writer.Add(row).ok());
  }
  EXPECT_THAT(ErrorOf(file.Bytes()), HasSubstr("is not a vramscope recording"));
}

class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    Random random(7);
    tables_ = RandomTables(&random, 4);
    allocations_ = RandomAllocations(&random, 60, 4);
    file_ = testing::WriteFile(tables_, allocations_, 20);
  }

  // Opens and reads it. True where nothing is missing; everything that was read is right.
  bool ReadsAsItWas(const std::string& bytes) {
    const MemoryFile file(bytes);
    auto recording = OpenDescriptor(file.fd(), "x.vram");
    if (!recording.ok()) {
      EXPECT_THAT(recording.status().message(), HasSubstr("x.vram: "));
      return false;
    }
    Tables read = (*recording)->tables();
    uint64_t missing = 0;
    if (read.losses.size() == tables_.losses.size() + 1) {
      EXPECT_EQ(read.strings[read.losses.back().name], "allocations in damaged parts of the file");
      missing = read.losses.back().count;
      read.losses.pop_back();
      StringTable strings;
      for (uint32_t id = 1; id + 1 < read.strings.size(); ++id)
        strings.Add(read.strings[StringId{id}]);
      read.strings = strings;
    }
    ExpectEqual(read, tables_);
    size_t rows = 0;
    for (size_t i = 0; i < (*recording)->frame_count(); ++i) {
      AllocationFrame frame;
      const util::Status status = (*recording)->Read(i, kAllColumns, &frame);
      EXPECT_TRUE(status.ok()) << status.message();
      for (size_t row = 0; row < frame.rows; ++row, ++rows) {
        const AllocationRow found{frame.begin_ns[row],     frame.end_ns[row],
                                  frame.alloc_ns[row],     frame.address[row],
                                  frame.bytes[row],        frame.rounding_bytes[row],
                                  SiteId{frame.site[row]}, SegmentId{frame.segment[row]}};
        EXPECT_NE(std::count(allocations_.begin(), allocations_.end(), found), 0);
      }
    }
    EXPECT_EQ(rows + missing, allocations_.size());
    return missing == 0;
  }

  Tables tables_;
  std::vector<AllocationRow> allocations_;
  std::string file_;
};

TEST_F(DamageTest, CutAnywhere) {
  ASSERT_TRUE(ReadsAsItWas(file_));
  for (size_t size = 0; size < file_.size(); ++size)
    ASSERT_NE(ErrorOf(file_.substr(0, size)), "") << size;
  EXPECT_NE(ErrorOf(file_ + "x"), "");
}

TEST_F(DamageTest, EveryByteIsUnderAChecksum) {
  for (size_t at = 0; at < file_.size(); ++at) {
    std::string damaged = file_;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    ASSERT_FALSE(ReadsAsItWas(damaged)) << at;
  }
}

TEST_F(DamageTest, ManyBytesAtOnce) {
  Random random(3);
  for (int i = 0; i < 500; ++i) {
    std::string damaged = file_;
    const size_t end = std::min<size_t>(damaged.size(), random() % damaged.size() + 500);
    for (size_t at = end - random() % end; at < end; ++at)
      damaged[at] = static_cast<char>(random());
    if (damaged == file_)
      continue;
    ASSERT_FALSE(ReadsAsItWas(damaged)) << i;
  }
}

TEST_F(DamageTest, ADamagedFrameLeavesTheOthers) {
  std::string damaged = file_;
  damaged[64 + 24 + 500] ^= 1;  // in the first frame
  const MemoryFile file(damaged);
  const std::unique_ptr<Recording> recording = Reopen(file);
  ASSERT_NE(recording, nullptr);
  const uint64_t missing = recording->tables().losses.back().count;
  EXPECT_EQ(recording->string(recording->tables().losses.back().name),
            "allocations in damaged parts of the file");
  EXPECT_GT(missing, 0u);
  EXPECT_LT(missing, allocations_.size());
  EXPECT_EQ(ReadAll(*recording).size(), allocations_.size() - missing);
  EXPECT_EQ(recording->tables().session.allocation_count, allocations_.size() - missing);
}

TEST(OpenTest, WhatIsNoRecording) {
  namespace fs = std::filesystem;
  const fs::path directory =
      fs::path(::testing::TempDir()) / ("tables-" + std::to_string(getpid()));
  fs::create_directories(directory);
  const auto error = [](const fs::path& path) {
    auto recording = Open(path);
    return recording ? std::string() : recording.status().message();
  };
  EXPECT_THAT(error(directory / "missing"), HasSubstr("No such file"));
  EXPECT_THAT(error(directory), HasSubstr("is not a regular file"));
  EXPECT_THAT(error("/dev/zero"), HasSubstr("is not a regular file"));
  ASSERT_EQ(mkfifo((directory / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(error(directory / "fifo"), HasSubstr("is not a regular file"));
  std::ofstream(directory / "empty").flush();
  EXPECT_THAT(error(directory / "empty"), HasSubstr("is empty"));
  fs::remove_all(directory);
  EXPECT_THAT(ErrorOf("VRAM"), HasSubstr("is not a vramscope recording"));
  EXPECT_THAT(ErrorOf("VRAMSCOP"), HasSubstr("was cut off"));
  EXPECT_THAT(ErrorOf(std::string("VRAMSCOP\1\0\1\0", 12) + std::string(100, '\0')),
              HasSubstr("in format 1.1"));
  EXPECT_THAT(ErrorOf(std::string("VRAMSCOP\3\0\0\0", 12) + std::string(100, '\0')),
              HasSubstr("newer vramscope"));
}

}  // namespace
}  // namespace vramscope::tables
