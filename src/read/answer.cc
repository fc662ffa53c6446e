// SPDX-License-Identifier: Apache-2.0
#include "read/answer.h"

#include <algorithm>
#include <utility>

#include "util/text.h"

namespace vramscope::read {

void Column::Null() {
  null_.resize(rows(), 0);
  null_.push_back(1);
  if (type_ == VRAMSCOPE_TEXT)
    Text("");
  else
    numbers_.push_back(0);
}

uint64_t* Column::Numbers(size_t rows) {
  numbers_.resize(numbers_.size() + rows);
  return numbers_.data() + numbers_.size() - rows;
}

uint32_t* Column::Codes(size_t rows) {
  codes_.resize(codes_.size() + rows);
  return codes_.data() + codes_.size() - rows;
}

uint8_t* Column::Nulls(size_t count) {
  null_.resize(rows() - count, 0);
  null_.resize(rows());
  return null_.data() + null_.size() - count;
}

void Column::Reserve(size_t rows, std::shared_ptr<BufferPool> pool) {
  pool_ = std::move(pool);
  pool_->Take(rows, &null_);
  if (type_ == VRAMSCOPE_TEXT)
    pool_->Take(rows, &codes_);
  else
    pool_->Take(rows, &numbers_);
}

Column::~Column() {
  if (pool_ == nullptr)
    return;
  pool_->Give(std::move(null_));
  pool_->Give(std::move(codes_));
  pool_->Give(std::move(numbers_));
}

void Column::Truncate(size_t rows) {
  numbers_.resize(std::min(numbers_.size(), rows));
  codes_.resize(std::min(codes_.size(), rows));
  null_.resize(std::min(null_.size(), rows));
}

uint32_t Column::CodeOf(std::string_view text) {
  const auto [found, added] =
      known_.try_emplace(util::ValidUtf8(text), static_cast<uint32_t>(texts_.size()));
  if (added)
    texts_.push_back(&found->first);
  return found->second;
}

const vramscope_column* Column::View() {
  if (!null_.empty())
    null_.resize(rows(), 0);
  text_views_.reserve(texts_.size());
  for (const std::string* text : texts_)
    text_views_.push_back({text->c_str(), text->size()});
  view_.size = sizeof view_;
  view_.name = name_.c_str();
  view_.unit = unit_.c_str();
  view_.type = type_;
  view_.text_count = static_cast<uint32_t>(text_views_.size());
  view_.values = type_ == VRAMSCOPE_TEXT ? static_cast<const void*>(codes_.data())
                                         : static_cast<const void*>(numbers_.data());
  view_.null = null_.empty() ? nullptr : null_.data();
  view_.texts = text_views_.data();
  return &view_;
}

Column& Table::Add(std::string name, std::string unit, uint32_t type) {
  columns_.push_back(std::make_unique<Column>(std::move(name), std::move(unit), type));
  return *columns_.back();
}

const vramscope_table* Table::View() {
  for (const std::unique_ptr<Column>& column : columns_)
    column_views_.push_back(column->View());
  view_.size = sizeof view_;
  view_.name = name_.c_str();
  view_.row_count = columns_.empty() ? 0 : columns_.front()->rows();
  view_.column_count = column_views_.size();
  view_.columns = column_views_.data();
  return &view_;
}

Table& Answer::Add(std::string name) {
  built_.push_back(std::make_unique<Table>(std::move(name)));
  return *built_.back();
}

const vramscope_answer* Answer::Release(std::unique_ptr<Answer> answer) {
  for (const std::unique_ptr<Table>& table : answer->built_)
    answer->views_.push_back(table->View());
  answer->size = sizeof(vramscope_answer);
  answer->table_count = answer->views_.size();
  answer->tables = answer->views_.data();
  return answer.release();
}

void Answer::Unref(const Answer* answer) {
  if (answer != nullptr && answer->references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
    delete answer;
}

std::shared_ptr<const Answer> Answer::Share(const Answer* answer) {
  answer->references_.fetch_add(1, std::memory_order_relaxed);
  return std::shared_ptr<const Answer>(answer, Unref);
}

}  // namespace vramscope::read
