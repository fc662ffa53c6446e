// SPDX-License-Identifier: Apache-2.0
// Answers as tables (RFC 4180).
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "output/devices.h"
#include "output/frames.h"
#include "output/iterations.h"
#include "output/keywords.h"
#include "output/leaks.h"
#include "output/results/csv.h"
#include "query/dimensions/frames.h"
#include "query/results.h"

namespace vramscope::output {
namespace {

template <class Value>
std::string CsvCellOf(const Value& value, const tables::Recording& recording) {
  if constexpr (std::is_same_v<Value, tables::DeviceId>)
    return DeviceMark(recording, value);
  else if constexpr (std::is_same_v<Value, tables::ProcessId>)
    return std::to_string(PidOf(recording, value));
  else if constexpr (std::is_same_v<Value, tables::StackId>)
    return CsvField(Joined(query::ShownStacks(recording).Texts(value), ";"));
  else if constexpr (std::is_same_v<Value, std::string>)
    return CsvField(value);
  else if constexpr (std::is_same_v<Value, double>)
    return fmt::format("{:.1f}", value);
  else if constexpr (std::is_arithmetic_v<Value>)
    return fmt::format("{}", value);
  else
    return value ? CsvCellOf(*value, recording) : "";
}

// A column each that VisitColumns() has.
template <class Row>
std::string RowsCsv(const std::vector<Row>& rows, const tables::Recording& recording) {
  std::string csv;
  query::VisitColumns<Row>(
      [&](const std::string& name, auto&&...) { csv += (csv.empty() ? "" : ",") + name; });
  csv += "\r\n";
  for (const Row& row : rows) {
    const size_t begin = csv.size();
    query::VisitColumns<Row>([&](const auto&, const auto&, const auto&, const auto& get) {
      csv += (csv.size() == begin ? "" : ",") + CsvCellOf(get(row), recording);
    });
    csv += "\r\n";
  }
  return csv;
}

// Both lists are one table, so that a line has cells of some columns only.
using Cells = std::map<std::string, std::string>;

// What `growing` calls last_bytes is what `never_freed` calls bytes.
std::string ColumnOf(const std::string& name) {
  return name == "last_bytes" ? "bytes" : name;
}

std::vector<std::string> Columns() {
  std::vector<std::string> columns = {"list"};
  query::VisitColumns<query::Growth>(
      [&](const std::string& name, auto&&...) { columns.push_back(ColumnOf(name)); });
  return columns;
}

void AddLine(const std::vector<std::string>& columns, const Cells& cells, std::string* csv) {
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto cell = cells.find(columns[i]);
    *csv += (i == 0 ? "" : ",") + (cell == cells.end() ? "" : cell->second);
  }
  *csv += "\r\n";
}

template <class Row>
void AddRows(const char* list,
             const std::vector<Row>& rows,
             const tables::Recording& recording,
             std::string* csv) {
  for (const Row& row : rows) {
    Cells cells = {{"list", list}};
    query::VisitColumns<Row>(
        [&](const std::string& name, const auto&, const auto&, const auto& get) {
          cells[ColumnOf(name)] = CsvCellOf(get(row), recording);
        });
    AddLine(Columns(), cells, csv);
  }
}

void AddCategory(const std::string& head,
                 const query::KeywordCategory& category,
                 std::string* csv) {
  for (const query::KeywordEntry& entry : category.entries) {
    *csv += fmt::format("{},{},{},{},{},{},{},{}\r\n", head, CsvField(category.name),
                        CsvField(category.group), entry.dimension, CsvField(entry.name),
                        entry.bytes, entry.rows, entry.count);
  }
}

}  // namespace

std::string IterationsCsv(const query::Iterations& iterations, const tables::Recording& recording) {
  return RowsCsv(iterations.iterations, recording);
}

std::string LeaksCsv(const query::Leaks& leaks, const tables::Recording& recording) {
  std::string csv = Joined(Columns(), ",") + "\r\n";
  // The verdict, and what the rows leave of it.
  Cells total = {{"list", "total"}, {"place", CsvField(VerdictOf(leaks).text)}};
  if (leaks.IsJudged())
    total["bytes_per_iteration"] = CsvCellOf(leaks.bytes_per_iteration, recording);
  AddLine(Columns(), total, &csv);
  if (leaks.IsJudged() && std::abs(leaks.unexplained_per_iteration) >= 0.05) {
    AddLine(Columns(),
            {{"list", "unexplained"},
             {"bytes_per_iteration", CsvCellOf(leaks.unexplained_per_iteration, recording)}},
            &csv);
  }
  AddRows("growing", leaks.growing, recording, &csv);
  AddRows("never_freed", leaks.NeverFreedRows(), recording, &csv);
  return csv;
}

std::string KeywordsCsv(const query::KeywordReport& report) {
  std::string csv = "device,index,dictionary,category,group,dimension,name,bytes,rows,count\r\n";
  for (const query::KeywordTable& table : report.tables) {
    const std::string head = fmt::format("{},{},{}", DeviceMark(report.report, table.device),
                                         DeviceIndex(report.report, table.device),
                                         CsvField(report.dictionaries[table.dictionary].name));
    for (const query::KeywordCategory& category : table.categories)
      AddCategory(head, category, &csv);
    AddCategory(head, table.others, &csv);
    if (table.untrackable_bytes)
      csv += fmt::format("{},{},,,,{},,\r\n", head, query::kUntrackable, *table.untrackable_bytes);
  }
  return csv;
}

}  // namespace vramscope::output
