// SPDX-License-Identifier: Apache-2.0
#include "read/growing_table.h"

#include <utility>

namespace vramscope::read {

Column& GrowingTable::Int(size_t at, const char* name) {
  if (at == columns_.size())
    Keep(&table_->Int(name));
  return *columns_[at];
}

Column& GrowingTable::Text(size_t at, const char* name) {
  if (at == columns_.size()) {
    Keep(&table_->Text(name));
    columns_.back()->CodeOf("");
  }
  return *columns_[at];
}

void GrowingTable::Keep(Column* column) {
  columns_.push_back(column);
  if (reserved_ > 0)
    column->Reserve(reserved_, pool_);
}

void GrowingTable::Truncate(size_t rows) {
  for (Column* const column : columns_)
    column->Truncate(rows);
}

std::unique_ptr<Answer> GrowingTable::Take() {
  std::unique_ptr<Answer> taken = std::move(answer_);
  Clear();
  return taken;
}

void GrowingTable::Clear() {
  answer_ = std::make_unique<Answer>();
  table_ = &answer_->Add(name_);
  columns_.clear();
}

}  // namespace vramscope::read
