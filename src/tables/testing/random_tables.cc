// SPDX-License-Identifier: Apache-2.0
#include "tables/testing/random_tables.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tables/table_checks.h"
#include "tables/writer.h"

namespace vramscope::tables::testing {
namespace {

void DieUnless(bool condition, const std::string& what) {
  if (condition)
    return;
  std::fprintf(stderr, "random_tables: %s\n", what.c_str());
  std::abort();
}

// Mostly small, sometimes with any bits set.
template <class T>
void Randomize(std::mt19937_64* random, uint32_t ids, T* value) {
  if constexpr (!kIsId<T>) {
    const uint64_t word = (*random)() >> ((*random)() % 64);
    *value = static_cast<T>((*random)() % 8 == 0 ? ~word : word);
  } else {
    *value = T{static_cast<uint32_t>((*random)() % ids)};
  }
}

template <class Row, class Type>
void RandomizeField(std::mt19937_64* random,
                    uint32_t ids,
                    Row* row,
                    const Column<Row, Type>& column) {
  Type& field = row->*column.field;
  Randomize(random, ids, &field);
  if constexpr (std::is_same_v<Type, int64_t>) {
    if (std::string_view(column.unit) == "ns")
      field = std::max(field >> 1, -kMaxTimeNs);
  }
}

template <class Row>
void RandomizeRow(std::mt19937_64* random, uint32_t ids, Row* row) {
  TableOf<Row>::VisitColumns([&](const auto& column) { RandomizeField(random, ids, row, column); });
}

}  // namespace

MemoryFile::MemoryFile() : fd_(memfd_create("vramscope-test", MFD_CLOEXEC)) {
  DieUnless(fd_ >= 0, "no file in memory");
}

MemoryFile::MemoryFile(const std::string& bytes) : MemoryFile() {
  DieUnless(write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "cannot write to memory");
}

MemoryFile::~MemoryFile() {
  close(fd_);
}

std::string MemoryFile::Bytes() const {
  std::string bytes(static_cast<size_t>(lseek(fd_, 0, SEEK_END)), '\0');
  DieUnless(pread(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
            "cannot read from memory");
  return bytes;
}

Tables RandomTables(std::mt19937_64* random, uint32_t rows) {
  Tables tables;
  for (uint32_t i = 1; i < rows; ++i) {
    std::string text((*random)() % 40, '\0');
    for (char& byte : text)
      byte = static_cast<char>((*random)());
    tables.strings.Add(text);
  }
  Tables::ForEach(tables, [&](auto& table) {
    const size_t first = table.size();
    table.resize(rows);
    for (size_t i = first; i < rows; ++i)
      RandomizeRow(random, rows, &table[i]);
  });
  for (uint32_t i = 1; i < rows; ++i)
    tables.stacks[i].parent = StackId{static_cast<uint32_t>((*random)() % i)};
  BoundWords(&tables);
  tables.session.name = "a name";
  tables.session.version = "9.8.7";
  tables.session.begin_ns = -5;
  tables.session.end_ns = kMaxTimeNs;
  tables.session.begin_wall_ns = -kMaxTimeNs;
  tables.session.event_count = 77;
  return tables;
}

std::vector<AllocationRow> RandomAllocations(std::mt19937_64* random, size_t count, uint32_t rows) {
  std::vector<AllocationRow> allocations(count);
  for (AllocationRow& row : allocations) {
    RandomizeRow(random, rows, &row);
    if ((*random)() % 4 == 0)
      row.end_ns = kNever;
    if (row.end_ns < row.begin_ns)
      std::swap(row.begin_ns, row.end_ns);
  }
  return allocations;
}

std::string WriteFile(const Tables& tables,
                      const std::vector<AllocationRow>& allocations,
                      size_t rows_per_frame,
                      bool pads_for_readers) {
  MemoryFile file;
  Writer writer(file.fd(), "x.vram",
                {.rows_per_frame = rows_per_frame, .pads_for_readers = pads_for_readers});
  util::Status status;
  for (const AllocationRow& row : allocations) {
    if (status.ok())
      status = writer.Add(row);
  }
  if (status.ok())
    status = writer.Finish(tables);
  DieUnless(status.ok(), status.message());
  return file.Bytes();
}

}  // namespace vramscope::tables::testing
