// SPDX-License-Identifier: Apache-2.0
// Iterations and leaks as tables.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "output/iterations.h"
#include "output/leaks.h"
#include "output/results/result_csv.h"

namespace vramscope::output {
namespace {

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

}  // namespace vramscope::output
