// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "read/answer.h"

namespace vramscope::read {

// A table that grows until it is taken. Columns are added in a fixed order.
class GrowingTable {
 public:
  // Columns that have memory for `reserved` rows do not move while they grow.
  explicit GrowingTable(const char* name, size_t reserved = 0) : name_(name), reserved_(reserved) {
    Clear();
  }

  const char* name() const { return name_; }
  size_t rows() const { return columns_.empty() ? 0 : columns_.front()->rows(); }
  // The column at `at`, which is added if the table ends before it.
  Column& Int(size_t at, const char* name);
  // The same of text. Its code 0 is the empty text, which stands for null.
  Column& Text(size_t at, const char* name);
  void Truncate(size_t rows);
  std::unique_ptr<Answer> Take();

 private:
  void Clear();
  void Keep(Column* column);

  const char* name_;
  size_t reserved_;  // 0: none
  std::shared_ptr<BufferPool> pool_ = std::make_shared<BufferPool>();
  std::unique_ptr<Answer> answer_;
  Table* table_ = nullptr;
  std::vector<Column*> columns_;
};

}  // namespace vramscope::read
