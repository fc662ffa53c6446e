// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tables/file_layout.h"

// A finished file taken apart, so that tests can say anything in it and have its checksums, sizes
// and zstd frames right all the same.
namespace vramscope::tables::testing {

struct FileModel {
  struct Column {
    ColumnHeader header{};             // `bytes` and `crc` are worked out
    std::vector<std::string> streams;  // unpacked
  };
  struct Block {
    IndexEntry entry{};    // `offset`, `bytes` and `crc` are worked out
    BlockHeader header{};  // `bytes`, `columns` and `crc` are worked out
    std::vector<Column> columns;
  };
  FileHeader header{};  // `crc` is worked out
  std::vector<Block> blocks;
  std::vector<size_t> index;  // which block each entry names
};

// Empty where the file is not whole.
std::optional<FileModel> TakeApart(std::string_view file);
std::string PutTogether(const FileModel& model);

// One to three random changes of anything: of the file's structure, and of what rows say.
void Mutate(FileModel* model, std::mt19937_64* random);
// A block of the other takes the place of one of the same table, or joins the file.
void Cross(FileModel* model, const FileModel& other, std::mt19937_64* random);

}  // namespace vramscope::tables::testing
