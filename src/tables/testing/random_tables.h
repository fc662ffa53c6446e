// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tables/recording.h"

// Recordings of anything at all, as whole files.
namespace vramscope::tables::testing {

// A file in memory: as long as it lives, `fd` is open.
class MemoryFile {
 public:
  MemoryFile();
  explicit MemoryFile(const std::string& bytes);
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();
  int fd() const { return fd_; }
  std::string Bytes() const;

 private:
  int fd_;
};

// `rows` rows in every table, with values of any size; all that they name exists.
Tables RandomTables(std::mt19937_64* random, uint32_t rows);
// `count` allocations over sites and segments of those tables.
std::vector<AllocationRow> RandomAllocations(std::mt19937_64* random, size_t count, uint32_t rows);
// All of that as a file; in frames of `rows_per_frame`.
std::string WriteFile(const Tables& tables,
                      const std::vector<AllocationRow>& allocations,
                      size_t rows_per_frame,
                      bool pads_for_readers = false);

}  // namespace vramscope::tables::testing
