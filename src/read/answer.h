// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "query/dimensions/dimensions.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "util/status.h"
#include "vramscope/read.h"

// Builds the tables of include/vramscope/read.h: fill columns of one length, then Release().
namespace vramscope::read {

// Does not clear the cells that a vector grows by: they are filled in.
template <class Cell>
struct Uncleared : std::allocator<Cell> {
  template <class Other>
  struct rebind {
    using other = Uncleared<Other>;
  };
  void construct(Cell* cell) { ::new (static_cast<void*>(cell)) Cell; }
  template <class... Values>
  void construct(Cell* cell, Values&&... values) {
    ::new (static_cast<void*>(cell)) Cell(std::forward<Values>(values)...);
  }
};
template <class Cell>
using Cells = std::vector<Cell, Uncleared<Cell>>;

// Keeps the memory of large columns for the next ones: new memory costs more time than its rows.
class BufferPool {
 public:
  template <class Cell>
  void Take(size_t rows, Cells<Cell>* cells) {
    {
      const std::scoped_lock lock(mutex_);
      std::vector<Cells<Cell>>& free = Free<Cell>();
      if (!free.empty()) {
        cells->swap(free.back());
        free.pop_back();
      }
    }
    cells->clear();
    cells->reserve(rows);
  }
  template <class Cell>
  void Give(Cells<Cell> cells) {
    if (cells.capacity() == 0)
      return;
    const std::scoped_lock lock(mutex_);
    Free<Cell>().push_back(std::move(cells));
  }

 private:
  template <class Cell>
  std::vector<Cells<Cell>>& Free() {
    return std::get<std::vector<Cells<Cell>>>(free_);
  }

  std::mutex mutex_;
  std::
      tuple<std::vector<Cells<uint8_t>>, std::vector<Cells<uint32_t>>, std::vector<Cells<uint64_t>>>
          free_;
};

class Column {
 public:
  Column(std::string name, std::string unit, uint32_t type)
      : name_(std::move(name)), unit_(std::move(unit)), type_(type) {}
  ~Column();
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  // For a column of that type. Signed numbers are their bits.
  void Number(uint64_t value) { numbers_.push_back(value); }
  void Number(int64_t value) { numbers_.push_back(static_cast<uint64_t>(value)); }
  void Text(std::string_view text) { codes_.push_back(CodeOf(text)); }
  // A text that CodeOf() has numbered.
  void Code(uint32_t code) { codes_.push_back(code); }
  void Null();
  void TextOrNull(std::string_view text) { text.empty() ? Null() : Text(text); }
  // Cells of the next rows, to be filled in.
  uint64_t* Numbers(size_t rows);
  uint32_t* Codes(size_t rows);
  // Of the last `rows` rows, to be filled in: 1 for a null.
  uint8_t* Nulls(size_t rows);
  void Truncate(size_t rows);
  // Memory for this number of rows. It returns to the pool at the end.
  void Reserve(size_t rows, std::shared_ptr<BufferPool> pool);
  template <class Value>
  void NumberOrNull(const std::optional<Value>& value) {
    value ? Number(static_cast<uint64_t>(*value)) : Null();
  }
  uint32_t CodeOf(std::string_view text);

  size_t rows() const { return type_ == VRAMSCOPE_TEXT ? codes_.size() : numbers_.size(); }
  const vramscope_column* View();

 private:
  std::string name_;
  std::string unit_;
  uint32_t type_;
  Cells<uint64_t> numbers_;
  Cells<uint32_t> codes_;
  Cells<uint8_t> null_;  // empty while no row is
  std::unordered_map<std::string, uint32_t> known_;
  std::vector<const std::string*> texts_;  // by code; they are keys of known_
  std::vector<vramscope_text> text_views_;
  vramscope_column view_{};
  std::shared_ptr<BufferPool> pool_;  // null: none
};

class Table {
 public:
  explicit Table(std::string name) : name_(std::move(name)) {}
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  Column& Int(std::string name, std::string unit = "") {
    return Add(std::move(name), std::move(unit), VRAMSCOPE_INT64);
  }
  Column& Uint(std::string name, std::string unit = "") {
    return Add(std::move(name), std::move(unit), VRAMSCOPE_UINT64);
  }
  Column& Text(std::string name) { return Add(std::move(name), "", VRAMSCOPE_TEXT); }

  const vramscope_table* View();

 private:
  Column& Add(std::string name, std::string unit, uint32_t type);

  std::string name_;
  std::vector<std::unique_ptr<Column>> columns_;
  std::vector<const vramscope_column*> column_views_;
  vramscope_table view_{};
};

class Answer : public vramscope_answer {
 public:
  Answer() : vramscope_answer{} {}
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  Table& Add(std::string name);
  // Passes ownership to a caller that returns it with Unref().
  static const vramscope_answer* Release(std::unique_ptr<Answer> answer);
  static void Unref(const Answer* answer);
  // Shares a released answer: it exists until the last owner releases it.
  static std::shared_ptr<const Answer> Share(const Answer* answer);

 private:
  mutable std::atomic<uint32_t> references_{1};
  std::vector<std::unique_ptr<Table>> built_;
  std::vector<const vramscope_table*> views_;
};

// Answers as tables: docs/READER.md lists their columns.

using AnswerResult = util::Result<std::unique_ptr<Answer>>;

AnswerResult TableAnswer(const tables::Recording& recording, const std::string& name);
// Rows of `allocations`, with the columns of tables.def.
std::unique_ptr<Answer> AllocationsAnswer(const tables::AllocationFrame& frame);
AnswerResult ReportAnswer(const tables::Recording& recording, const query::ReportQuery& query);
AnswerResult IterationsAnswer(const tables::Recording& recording);
AnswerResult PhasesAnswer(const tables::Recording& recording);
AnswerResult TimelineAnswer(const tables::Recording& recording, size_t buckets);

// Rows of `allocations` that live at some instant of a window, a frame of the file at a time.
class AllocationCursor {
 public:
  AllocationCursor(const tables::Recording& recording,
                   int64_t from_ns,
                   int64_t to_ns,
                   std::vector<query::Dimension> by,
                   std::vector<std::string> own)
      : recording_(recording),
        from_ns_(from_ns),
        to_ns_(to_ns),
        by_(std::move(by)),
        texts_(recording, std::move(own)) {}

  // Null at the end.
  AnswerResult Next();

 private:
  std::unique_ptr<Answer> AnswerOf(const tables::AllocationFrame& frame,
                                   const std::vector<size_t>& rows);
  void AddTexts(query::Dimension dimension,
                const tables::AllocationFrame& frame,
                const std::vector<size_t>& rows,
                Column* column) const;

  const tables::Recording& recording_;
  int64_t from_ns_;
  int64_t to_ns_;
  std::vector<query::Dimension> by_;
  query::DimensionValues texts_;
  size_t next_ = 0;
};

}  // namespace vramscope::read
