// SPDX-License-Identifier: Apache-2.0
#include "output/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "output/keywords.h"
#include "output/names.h"
#include "output/results/result_json.h"
#include "query/dimensions/frames.h"
#include "query/results.h"
#include "util/text.h"

// Answers as JSON, and as tables (RFC 4180).
namespace vramscope::output {

void WriteReportJson(const query::Report& report,
                     const tables::Recording& recording,
                     util::JsonWriter& json) {
  WriteAnswer(kReportSchema, report, {&recording, &report}, json);
}

std::string ReportJson(const query::Report& report,
                       const tables::Recording& recording,
                       std::string_view holders) {
  return JsonText([&](util::JsonWriter& json) {
    json.BeginObject();
    json.Field("schema", kReportSchema);
    ResultJson({&recording, &report}).WriteFields(report, json);
    if (!holders.empty()) {
      json.Key("holders");
      json.Raw(holders);
    }
    json.EndObject();
  });
}

std::string IterationsJson(const query::Iterations& iterations,
                           const tables::Recording& recording) {
  return AnswerJson(kIterationsSchema, iterations, {&recording});
}

std::string PhasesJson(const query::EnginePhases& phases, const tables::Recording& recording) {
  return AnswerJson(kPhasesSchema, phases, {&recording});
}

void WritePhasesJson(const query::EnginePhases& phases,
                     const tables::Recording& recording,
                     util::JsonWriter& json) {
  WriteAnswer(kPhasesSchema, phases, {&recording}, json);
}

std::string XlaProgramsJson(const query::XlaPrograms& programs,
                            const tables::Recording& recording) {
  return AnswerJson(kXlaProgramsSchema, programs, {&recording});
}

void WriteSavingsJson(const query::Savings& savings,
                      const tables::Recording& recording,
                      util::JsonWriter& json) {
  WriteAnswer(kSavingsSchema, savings, {&recording}, json);
}

std::string SavingsJson(const query::Savings& savings, const tables::Recording& recording) {
  return AnswerJson(kSavingsSchema, savings, {&recording});
}

std::string LeaksJson(const query::Leaks& leaks, const tables::Recording& recording) {
  return AnswerJson(kLeaksSchema, leaks, {&recording});
}

std::string WhatIfJson(const query::WhatIf& what, const tables::Recording& recording) {
  return AnswerJson(kWhatIfSchema, what, {&recording});
}

void WriteDiffJson(const query::Diff& diff, util::JsonWriter& json) {
  WriteAnswer(kDiffSchema, diff, {}, json);
}

std::string DiffJson(const query::Diff& diff) {
  return AnswerJson(kDiffSchema, diff, {});
}

std::string PredictionJson(const query::Prediction& prediction) {
  return AnswerJson(kPredictSchema, prediction, {});
}

void WriteRanksJson(const query::RankReport& report, util::JsonWriter& json) {
  WriteAnswer(kRanksSchema, report, {}, json);
}

std::string RanksJson(const query::RankReport& report) {
  return AnswerJson(kRanksSchema, report, {});
}

std::string SummaryJson(const query::Summary& summary) {
  return AnswerJson(kSummarySchema, summary, {});
}

std::string OutOfMemoryJson(const query::Refusals& refusals, const tables::Recording& recording) {
  return AnswerJson(kOutOfMemorySchema, refusals, {&recording});
}

std::string JsonOfFiles(const std::vector<std::string>& objects) {
  if (objects.size() == 1)
    return objects[0];
  std::string text;
  for (const std::string& object : objects) {
    text += text.empty() ? "[\n" : ",\n";
    text.append(object, 0, object.find_last_not_of('\n') + 1);
  }
  return text + "\n]\n";
}

namespace {

struct Column {
  std::string name;
  size_t level;  // of the row's path
};

std::vector<Column> PathColumns(const std::vector<NamedReport>& reports,
                                const std::vector<query::Dimension>& by) {
  std::vector<Column> columns;
  if (!by.empty()) {
    for (size_t i = 0; i < by.size(); ++i) {
      // The table has a device column anyway; two of one name would break its readers.
      if (by[i] != query::Dimension::kDevice)
        columns.push_back({query::DimensionName(by[i]), i});
    }
    return columns;
  }
  size_t levels = 0;
  for (const NamedReport& named : reports) {
    for (const query::ReportRow& row : named.report.rows)
      levels = std::max(levels, row.path.size());
  }
  for (size_t i = 0; i < levels; ++i)
    columns.push_back({fmt::format("level{}", i + 1), i});
  return columns;
}

int64_t InstantOf(const query::Report& report, tables::DeviceId device) {
  const auto found = std::find_if(report.devices.begin(), report.devices.end(),
                                  [&](const auto& entry) { return entry.device == device; });
  return found == report.devices.end() ? 0 : found->at_ns;
}

}  // namespace

std::string CsvField(std::string_view text) {
  return util::CsvCell(text);
}

std::string ReportCsv(const std::vector<NamedReport>& reports,
                      const std::vector<query::Dimension>& by,
                      CsvColumns first) {
  const std::vector<Column> columns = PathColumns(reports, by);
  std::string csv = first.file ? "file," : "";
  csv += first.at_ns ? "at_ns," : "";
  csv += "device,index,pid";
  for (const Column& column : columns)
    csv += "," + column.name;
  csv += ",bytes,count\r\n";
  for (const NamedReport& named : reports) {
    for (const query::ReportRow& row : named.report.rows) {
      if (first.file)
        csv += CsvField(named.file) + ",";
      if (first.at_ns)
        csv += fmt::format("{},", InstantOf(named.report, row.device));
      csv += fmt::format("{},{}", DeviceMark(named.report, row.device),
                         DeviceIndex(named.report, row.device));
      csv += row.pid ? fmt::format(",{}", *row.pid) : ",";
      for (const Column& column : columns) {
        csv += ',';
        if (column.level < row.path.size())
          csv += CsvField(row.path[column.level]);
      }
      csv += fmt::format(",{},{}\r\n", row.bytes, row.count);
    }
  }
  return csv;
}

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
