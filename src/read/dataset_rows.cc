// SPDX-License-Identifier: Apache-2.0
#include "read/dataset_rows.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <type_traits>
#include <utility>

#include "query/dimensions/report.h"
#include "query/results.h"

namespace vramscope::read {
namespace {

template <class Value>
void Put(const Value& value, Column* column) {
  if constexpr (std::is_same_v<Value, std::string>)
    column->Text(value);
  else if constexpr (std::is_same_v<Value, double>)
    column->Number(std::bit_cast<uint64_t>(value));
  else if constexpr (std::is_arithmetic_v<Value>)
    column->Number(static_cast<uint64_t>(value));
  else
    column->NumberOrNull(value);
}

// The rows of one table of a summary.
template <class Row>
void AddRows(const std::vector<Row>& rows, int64_t number, GrowingTable* table) {
  size_t at = 0;
  Column& recording = table->Int(at++, "recording");
  for (size_t i = 0; i < rows.size(); ++i)
    recording.Number(number);
  query::ResultOf<Row>::VisitFields(
      [&]<class Form, class Get>(const query::Field<Row, Form, Get>& field) {
        Column& column = std::is_same_v<Form, std::string> ? table->Text(at++, field.name)
                                                           : table->Int(at++, field.name);
        for (const Row& row : rows)
          Put(std::invoke(field.get, row), &column);
      });
}

}  // namespace

DatasetRows::DatasetRows(size_t group_rows, std::shared_ptr<WrittenStacks> stacks)
    : group_rows_(std::max<size_t>(1, group_rows)),
      written_(std::move(stacks)),
      detail_{.allocations = GrowingTable("allocations", group_rows_)} {
  query::ResultOf<query::Summary>::VisitFields([&](const auto& field) {
    using Rows = std::decay_t<decltype(std::invoke(field.get, query::Summary()))>;
    if constexpr (query::kIsRows<Rows>)
      summary_.push_back(std::make_unique<GrowingTable>(field.name));
  });
}

DatasetRows::~DatasetRows() = default;

void DatasetRows::AddHead(const Head& head, int64_t number) {
  recordings_.Int(0, "recording").Number(number);
  recordings_.Text(1, "run").Text(head.run);
  recordings_.Int(2, "rank").Number(int64_t{head.rank});
}

util::Status DatasetRows::AddSummary(const tables::Recording& recording, int64_t number) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const query::Summary summary, query::MakeSummary(recording));
  size_t at = 0;
  query::ResultOf<query::Summary>::VisitFields([&](const auto& field) {
    const auto& rows = std::invoke(field.get, summary);
    if constexpr (query::kIsRows<std::decay_t<decltype(rows)>>)
      AddRows(rows, number, summary_[at++].get());
  });
  return {};
}

util::Result<bool> DatasetRows::AddDetail(
    const std::shared_ptr<const tables::Recording>& recording) {
  if (open_ == nullptr || !open_->IsOf(*recording)) {
    const uint64_t count = recording->tables().session.allocation_count;
    if (const size_t rows = detail_.allocations.rows();
        rows > 0 && rows + std::min<uint64_t>(count, group_rows_) > group_rows_)
      return false;
    auto detail =
        std::make_unique<DetailRows>(recording, group_rows_, written_.get(), &detail_, &scratch_);
    if (count > group_rows_)
      VRAMSCOPE_RETURN_IF_ERROR(detail->Check());
    open_ = std::move(detail);
  }
  util::Result<bool> added = open_->AddAllocations();
  if (added.ok() && !*added)
    return false;
  const std::unique_ptr<DetailRows> done = std::move(open_);
  if (added.ok()) {
    done->AddDeltas();
    done->AddSamples();
  }
  return added;
}

GrowingTable* DatasetRows::Find(const std::string& name) {
  for (GrowingTable* const table :
       {&recordings_, &detail_.allocations, &detail_.deltas, &detail_.samples, &detail_.stacks}) {
    if (name == table->name())
      return table;
  }
  for (const std::unique_ptr<GrowingTable>& table : summary_) {
    if (name == table->name())
      return table.get();
  }
  return nullptr;
}

}  // namespace vramscope::read
