// SPDX-License-Identifier: Apache-2.0
// Malicious files: their checksums hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tables/frame_codec.h"
#include "tables/reader.h"
#include "tables/table_codec.h"
#include "tables/testing/file_model.h"
#include "tables/testing/random_tables.h"

namespace vramscope::tables {
namespace {

using testing::FileModel;
using ::testing::HasSubstr;
using testing::MemoryFile;
using Random = std::mt19937_64;

constexpr uint16_t kAllocations = TableOf<AllocationRow>::kNumber;

std::string SmallFile() {
  Random random(6);
  const Tables tables = testing::RandomTables(&random, 6);
  return testing::WriteFile(tables, testing::RandomAllocations(&random, 60, 6), 20);
}

// Reads all that there is of it; the first error, or "".
std::string ReadEverything(const std::string& bytes, uint32_t wanted = kAllColumns) {
  const MemoryFile file(bytes);
  auto recording = OpenDescriptor(file.fd(), "x.vram");
  if (!recording.ok())
    return recording.status().message();
  std::string error;
  AllocationFrame frame;
  for (size_t i = 0; i < (*recording)->frame_count(); ++i) {
    const util::Status status = (*recording)->Read(i, wanted, &frame);
    if (!status.ok() && error.empty())
      error = status.message();
  }
  return error;
}

std::string ReadEverything(const FileModel& model, uint32_t wanted = kAllColumns) {
  return ReadEverything(testing::PutTogether(model), wanted);
}

FileModel::Block* Find(FileModel* model, uint16_t table) {
  for (FileModel::Block& block : model->blocks) {
    if (block.entry.table == table)
      return &block;
  }
  ADD_FAILURE() << "no block of table " << table;
  return &model->blocks.front();
}

FileModel::Column* Find(FileModel::Block* block, uint16_t number) {
  for (FileModel::Column& column : block->columns) {
    if (column.header.number == number)
      return &column;
  }
  ADD_FAILURE() << "no column " << number;
  return &block->columns.front();
}

// A column of `values` times 0, which takes no bytes.
FileModel::Column Zeros(uint16_t number, uint32_t values) {
  FileModel::Column column;
  column.header.number = number;
  column.header.values = values;
  return column;
}

void SetRows(FileModel::Block* block, uint32_t rows) {
  block->entry.rows = block->header.rows = rows;
}

void AppendCopies(FileModel* model, const FileModel::Block& block, size_t copies) {
  for (size_t i = 0; i < copies; ++i) {
    model->index.push_back(model->blocks.size());
    model->blocks.push_back(block);
  }
}

class HostileFileTest : public ::testing::Test {
 protected:
  FileModel model_ = testing::TakeApart(SmallFile()).value();
};

TEST_F(HostileFileTest, TakenApartAndPutTogetherItIsTheSame) {
  EXPECT_EQ(ReadEverything(model_), "");
  EXPECT_EQ(testing::PutTogether(testing::TakeApart(testing::PutTogether(model_)).value()),
            testing::PutTogether(model_));
}

TEST_F(HostileFileTest, TablesAndColumnsOfANewerMinorVersionAreSkipped) {
  model_.header.minor = 9;
  FileModel::Block unknown = *Find(&model_, TableOf<MarkRow>::kNumber);
  unknown.entry.table = unknown.header.table = 999;
  AppendCopies(&model_, unknown, 1);
  FileModel::Block* marks = Find(&model_, TableOf<MarkRow>::kNumber);
  FileModel::Column column = marks->columns.front();
  column.header.number = 77;
  column.header.encoding = 99;
  marks->columns.push_back(column);
  FileModel::Block* frame = Find(&model_, kAllocations);
  frame->columns.insert(frame->columns.begin(), column);
  EXPECT_EQ(ReadEverything(model_), "");
}

TEST_F(HostileFileTest, AColumnThatAnOlderVersionDidNotWriteIsZero) {
  FileModel::Block* marks = Find(&model_, TableOf<MarkRow>::kNumber);
  marks->columns.erase(marks->columns.begin());
  const MemoryFile file(testing::PutTogether(model_));
  auto recording = OpenDescriptor(file.fd(), "x.vram");
  ASSERT_TRUE(recording.ok()) << recording.status().message();
  EXPECT_EQ((*recording)->tables().marks.at(3).time_ns, 0);
}

TEST_F(HostileFileTest, RowZeroIsNoneWhateverTheFileSays) {
  FileModel::Block* devices = Find(&model_, TableOf<DeviceRow>::kNumber);
  FileModel::Column* total = Find(devices, 6);
  total->header.encoding = static_cast<uint8_t>(Encoding::kPlain);
  total->header.width = 0;
  total->header.base = 5;
  total->streams.clear();
  const MemoryFile file(testing::PutTogether(model_));
  auto recording = OpenDescriptor(file.fd(), "x.vram");
  ASSERT_TRUE(recording.ok()) << recording.status().message();
  EXPECT_EQ((*recording)->tables().devices.at(0).total_bytes, 0u);
  EXPECT_EQ((*recording)->tables().devices.at(1).total_bytes, 5u);
}

TEST_F(HostileFileTest, IdsThatLeadNowhereAreRefused) {
  FileModel::Column* name = Find(Find(&model_, TableOf<MarkRow>::kNumber), 2);
  *name = Zeros(2, name->header.values);
  name->header.base = 1000;
  EXPECT_THAT(ReadEverything(model_), HasSubstr("is damaged (marks)"));
}

TEST_F(HostileFileTest, SitesAndSegmentsThatDoNotExistAreADamagedFrame) {
  for (const uint16_t column : {uint16_t{kShapeSite}, uint16_t{kShapeSegment}}) {
    FileModel model = model_;
    FileModel::Column* ids = Find(Find(&model, kAllocations), column);
    *ids = Zeros(column, ids->header.values);
    ids->header.base = 6;
    for (const uint32_t wanted : {uint32_t{kAllColumns}, uint32_t{kShape}})
      EXPECT_THAT(ReadEverything(model, wanted), HasSubstr("of its allocations cannot be read"));
  }
}

TEST_F(HostileFileTest, TimesOutsideOfTheZoneAreADamagedFrame) {
  // What is in the frames is random: one of a single row has no zone to be outside of.
  const auto frame =
      std::find_if(model_.blocks.begin(), model_.blocks.end(), [](const auto& block) {
        return block.entry.table == kAllocations &&
               block.entry.max_begin_ns > block.entry.min_begin_ns;
      });
  ASSERT_NE(frame, model_.blocks.end());
  --frame->entry.max_begin_ns;
  EXPECT_THAT(ReadEverything(model_), HasSubstr("of its allocations cannot be read"));
}

TEST_F(HostileFileTest, StacksThatGoInCirclesAreRefused) {
  FileModel::Column* parent = Find(Find(&model_, TableOf<StackRow>::kNumber), 1);
  *parent = Zeros(1, parent->header.values);
  parent->header.base = 1;
  EXPECT_THAT(ReadEverything(model_), HasSubstr("is damaged (stacks)"));
}

TEST_F(HostileFileTest, AFrameThatTheIndexNamesManyTimesIsRefused) {
  model_.index.insert(model_.index.begin(), 100'000, 0);
  EXPECT_THAT(ReadEverything(model_), HasSubstr("is damaged (its index)"));
}

TEST_F(HostileFileTest, RowsOfZerosAreChargedBeforeTheyAreMade) {
  FileModel::Block* steps = Find(&model_, TableOf<StepRow>::kNumber);
  SetRows(steps, kMaxBlockRows);
  for (FileModel::Column& column : steps->columns)
    column = Zeros(column.header.number, kMaxBlockRows);
  EXPECT_EQ(ReadEverything(model_), "");
  const FileModel::Block zeros = *steps;
  AppendCopies(&model_, zeros, 400);  // 60 KiB, which claim 600 MiB
  EXPECT_THAT(ReadEverything(model_), HasSubstr("steps would take more than"));
}

TEST_F(HostileFileTest, AllocationsOfZerosAreChargedToo) {
  FileModel::Block* frame = Find(&model_, kAllocations);
  SetRows(frame, kMaxBlockRows);
  frame->columns.clear();
  frame->columns.push_back(Zeros(kShapeSite, 1));
  frame->entry.min_begin_ns = frame->entry.max_begin_ns = 0;
  frame->entry.min_end_ns = frame->entry.max_end_ns = 0;
  EXPECT_EQ(ReadEverything(model_), "");
  const FileModel::Block zeros = *frame;
  AppendCopies(&model_, zeros, 200);  // 26 KiB, which claim 13 million
  EXPECT_THAT(ReadEverything(model_), HasSubstr("too much for a file of"));
}

TEST_F(HostileFileTest, TextsAreChargedBeforeTheyAreUnpacked) {
  FileModel::Block* strings = Find(&model_, kStringsBlock);
  FileModel::Column* sizes = Find(strings, kTextSizes);
  FileModel::Column* bytes = Find(strings, kTextBytes);
  constexpr uint32_t kBomb = 200u << 20;
  SetRows(strings, 5);
  *sizes = Zeros(kTextSizes, 5);
  sizes->header.base = kBomb / 5;
  bytes->header.values = kBomb;
  bytes->streams.front().assign(kBomb, 'a');
  EXPECT_THAT(ReadEverything(model_), HasSubstr("bytes of text would take more than"));
}

TEST_F(HostileFileTest, ALongTextThatEveryRowNamesIsAClaim) {
  Tables tables;
  const StringId name = tables.strings.Add(std::string(100'000, 'n'));
  tables.marks.resize(1000);
  EXPECT_EQ(ReadEverything(testing::WriteFile(tables, {}, 20)), "");
  for (MarkRow& mark : tables.marks)
    mark.name = name;
  EXPECT_EQ(ReadEverything(testing::WriteFile(tables, {}, 20)), "");  // 100 MB, below 128 MiB
  tables.marks.resize(2000, tables.marks.front());
  // The writer makes the file as large as its reader wants it: without that it is a claim.
  EXPECT_EQ(ReadEverything(testing::WriteFile(tables, {}, 20, true)), "");
  EXPECT_THAT(ReadEverything(testing::WriteFile(tables, {}, 20)),
              HasSubstr("text, as often as its rows name them, would take more than 128"));
}

TEST_F(HostileFileTest, ATextIsCut) {
  Tables tables;
  tables.strings.Add(std::string(kMaxTextBytes + 1, 'n'));
  tables.strings.Add("behind");
  const MemoryFile file(testing::WriteFile(tables, {}, 20));
  const auto recording = OpenDescriptor(file.fd(), "x.vram");
  ASSERT_TRUE(recording.ok());
  EXPECT_EQ((*recording)->string(StringId{1}).size(), kMaxTextBytes);
  EXPECT_EQ((*recording)->string(StringId{2}), "behind");
}

TEST_F(HostileFileTest, ColumnsOfMoreValuesThanABlockHasRowsAreDamage) {
  FileModel::Block* steps = Find(&model_, TableOf<StepRow>::kNumber);
  for (FileModel::Column& column : steps->columns)
    column = Zeros(column.header.number, UINT32_MAX);
  EXPECT_THAT(ReadEverything(model_), HasSubstr("is damaged (steps)"));
  SetRows(steps, UINT32_MAX);
  EXPECT_THAT(ReadEverything(model_), HasSubstr("is damaged (its index)"));
}

// What a mutated file may cost.
constexpr double kMaxCpuSeconds = 2;
constexpr rlim_t kMaxMemoryBytes = rlim_t{1} << 30;
constexpr int kMutations = 20'000;
constexpr int kMeasurements = 4;
enum ExitStatus { kFine = 0, kTooSlow = 3 };

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Of a few measurements where the first is over the limit: a virtual machine counts what its host
// gave to others as time of its own processes. What is slow is slow each time.
template <class Work>
double LeastSecondsOf(Work work) {
  double least = kMaxCpuSeconds + 1;
  for (int i = 0; i < kMeasurements && least > kMaxCpuSeconds; ++i) {
    const double begin = CpuSeconds();
    work();
    least = std::min(least, CpuSeconds() - begin);
  }
  return least;
}

[[noreturn]] void ReadMutatedFiles(const FileModel& whole) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit limit{kMaxMemoryBytes, kMaxMemoryBytes};
  setrlimit(RLIMIT_AS, &limit);
#endif
  for (int i = 0; i < kMutations; ++i) {
    Random random(static_cast<uint64_t>(i));
    FileModel model = whole;
    testing::Mutate(&model, &random);
    const std::string bytes = testing::PutTogether(model);
    if (LeastSecondsOf([&bytes] { (void)ReadEverything(bytes); }) > kMaxCpuSeconds) {
      dprintf(STDERR_FILENO, "mutation %d took more than %.0f s\n", i, kMaxCpuSeconds);
      _exit(kTooSlow);
    }
  }
  _exit(kFine);
}

TEST_F(HostileFileTest, MutatedFilesTakeLittleTimeAndMemory) {
  // In a process of its own: it has a limit on memory, and a crash is found.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    ReadMutatedFiles(model_);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), kFine);
}

}  // namespace
}  // namespace vramscope::tables
