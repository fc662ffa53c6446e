// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tables/reader.h"
#include "tables/table_codec.h"
#include "tables/writer.h"

namespace vramscope::tables {
namespace {

using Random = std::mt19937_64;

// A file in memory.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("tables_test", MFD_CLOEXEC)) {}
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() { close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Mostly small, sometimes with any bits set.
uint64_t RandomWord(Random* random) {
  return (*random)() >> ((*random)() % 64);
}

template <class T>
void Randomize(Random* random, uint32_t ids, T* value) {
  if constexpr (std::is_integral_v<T>) {
    *value = static_cast<T>(RandomWord(random) ^ ((*random)() % 8 == 0 ? ~uint64_t{0} : 0));
  } else {
    *value = T{static_cast<uint32_t>((*random)() % ids)};
  }
}

Tables RandomTables(Random* random, size_t rows) {
  Tables tables;
  for (size_t i = 1; i < rows; ++i) {
    std::string text((*random)() % 40, '\0');
    for (char& byte : text)
      byte = static_cast<char>((*random)());
    tables.strings.Add(text);
  }
  Tables::ForEach(tables, [&]<class Row>(std::vector<Row>& table) {
    const size_t first = table.size();
    table.resize(rows);
    for (size_t i = first; i < rows; ++i) {
      std::apply(
          [&](const auto&... columns) {
            (Randomize(random, static_cast<uint32_t>(rows), &(table[i].*columns.field)), ...);
          },
          TableOf<Row>::Columns());
    }
  });
  for (uint32_t i = 1; i < rows; ++i)
    tables.stacks[i].parent = StackId{static_cast<uint32_t>((*random)() % i)};
  tables.session.name = "a name";
  tables.session.version = "9.8.7";
  tables.session.begin_ns = -5;
  tables.session.end_ns = INT64_MAX;
  tables.session.begin_wall_ns = INT64_MIN;
  tables.session.event_count = 77;
  return tables;
}

template <class Row>
auto Fields(const Row& row) {
  return std::apply([&](const auto&... columns) { return std::make_tuple(row.*columns.field...); },
                    TableOf<Row>::Columns());
}

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
      ASSERT_TRUE(Fields(rows[i]) == Fields(other[i])) << TableOf<Row>::kName << " " << i;
  });
}

std::vector<AllocationRow> RandomAllocations(Random* random, size_t count, uint32_t ids) {
  std::vector<AllocationRow> rows(count);
  for (AllocationRow& row : rows) {
    std::apply(
        [&](const auto&... columns) { (Randomize(random, ids, &(row.*columns.field)), ...); },
        TableOf<AllocationRow>::Columns());
    if ((*random)() % 4 == 0)
      row.end_ns = kNever;
    if (row.end_ns < row.begin_ns)
      std::swap(row.begin_ns, row.end_ns);
  }
  return rows;
}

std::unique_ptr<Recording> Reopen(const MemoryFile& file) {
  auto recording = OpenDescriptor(file.fd(), "x.vram");
  EXPECT_TRUE(recording.ok()) << recording.status().message();
  return recording ? std::move(*recording) : nullptr;
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

void Sort(std::vector<AllocationRow>* rows) {
  std::sort(rows->begin(), rows->end(),
            [](const auto& a, const auto& b) { return Fields(a) < Fields(b); });
}

TEST(FileTest, EveryTableComesBack) {
  Random random(1);
  for (const size_t rows : {size_t{1}, size_t{2}, size_t{100}, size_t{70'000}}) {
    const Tables tables = RandomTables(&random, rows);
    std::vector<AllocationRow> allocations =
        RandomAllocations(&random, rows, static_cast<uint32_t>(rows));
    MemoryFile file;
    Writer writer(file.fd(), "x.vram", {.rows_per_frame = 5000});
    for (const AllocationRow& row : allocations)
      ASSERT_TRUE(writer.Add(row).ok());
    const util::Status status = writer.Finish(tables);
    ASSERT_TRUE(status.ok()) << status.message();
    const std::unique_ptr<Recording> recording = Reopen(file);
    ASSERT_NE(recording, nullptr);
    ExpectEqual(tables, recording->tables());
    EXPECT_EQ(recording->tables().session.file_bytes, writer.file_bytes());
    EXPECT_EQ(recording->tables().session.allocation_count, allocations.size());
    EXPECT_TRUE(recording->tables().session.finished);
    std::vector<AllocationRow> read = ReadAll(*recording);
    Sort(&allocations);
    Sort(&read);
    ASSERT_EQ(read.size(), allocations.size());
    for (size_t i = 0; i < read.size(); ++i)
      ASSERT_TRUE(Fields(read[i]) == Fields(allocations[i])) << i;
  }
}

}  // namespace
}  // namespace vramscope::tables
