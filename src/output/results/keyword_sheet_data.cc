// SPDX-License-Identifier: Apache-2.0
// The sheet as JSON and CSV.
#include <fmt/format.h>

#include <optional>
#include <type_traits>
#include <utility>

#include "output/answers.h"
#include "output/keywords.h"
#include "output/names.h"
#include "output/results/json_parts.h"
#include "util/json.h"

namespace vramscope::output {
namespace {

using util::JsonWriter;

// A line, and the dictionary that it is of.
struct Of {
  const SheetTable* table;
  const SheetLine* line;
};

class SheetWriter {
 public:
  SheetWriter(const std::vector<NamedKeywords>& reports, JsonWriter& json)
      : reports_(reports), sheet_(MakeKeywordSheet(reports)), json_(json) {}

  void Write() {
    json_.BeginObject();
    json_.Field("schema", kKeywordSheetSchema);
    WriteList(json_, "columns", sheet_.columns, [&](const SheetColumn& column, JsonWriter& out) {
      out.Field("name", column.name);
      out.Field("file", column.of->file);
      out.Field("device", column.device->index);
      out.Field("kind", DeviceKindName(column.device->kind));
      out.Field("ledger_bytes", column.device->ledger_bytes);
    });
    WriteList(json_, "tables", sheet_.tables, [&](const SheetTable& table, JsonWriter& out) {
      out.Field("dictionary", NameOf(table));
      Column(table, out, "row_bytes", [](const auto& of) { return std::optional(of.row_bytes); });
      Column(table, out, "expected_bytes", [](const auto& of) { return of.expected_bytes; });
      Column(table, out, "untrackable_bytes", [](const auto& of) { return of.untrackable_bytes; });
      out.Field("all_row_bytes", table.row_bytes);
      NumberOrNull(out, "all_expected_bytes", table.expected_bytes);
      NumberOrNull(out, "all_untrackable_bytes", table.untrackable_bytes);
    });
    std::vector<Of> categories;
    std::vector<Of> groups;
    for (const SheetTable& table : sheet_.tables) {
      for (const SheetLine& line : table.categories)
        categories.push_back({&table, &line});
      categories.push_back({&table, &table.others});
      for (const SheetLine& line : table.groups)
        groups.push_back({&table, &line});
    }
    WriteLines("categories", "category", categories);
    WriteLines("groups", "group", groups);
    json_.Key("reports");
    json_.BeginArray();
    for (const NamedKeywords& named : reports_)
      WriteKeywords(named.report, json_);
    json_.EndArray();
    json_.EndObject();
  }

 private:
  const std::string& NameOf(const SheetTable& table) const {
    return reports_[0].report.dictionaries[table.dictionary].name;
  }

  // A figure of each column, null where it has none.
  template <class FigureOf>
  static void Column(const SheetTable& table,
                     JsonWriter& out,
                     const char* key,
                     const FigureOf& figure_of) {
    out.Key(key);
    out.BeginArray();
    for (const query::KeywordTable* const of : table.columns) {
      const auto figure = figure_of(*of);
      figure ? WriteNumber(out, *figure) : out.Null();
    }
    out.EndArray();
  }

  void WriteLines(const char* key, const char* name, const std::vector<Of>& lines) {
    WriteList(json_, key, lines, [&](const Of& of, JsonWriter& out) {
      out.Field("dictionary", NameOf(*of.table));
      out.Field(name, of.line->name);
      if (std::string_view(name) == "category")
        TextOrNull(out, "group", of.line->group);
      for (const auto& [field, member] :
           {std::pair("bytes", &SheetFigure::bytes), std::pair("count", &SheetFigure::count)}) {
        out.Key(field);
        out.BeginArray();
        for (const SheetFigure& figure : of.line->columns)
          out.Uint(figure.*member);
        out.EndArray();
      }
      out.Field("all_bytes", of.line->all.bytes);
      out.Field("all_count", of.line->all.count);
    });
  }

  const std::vector<NamedKeywords>& reports_;
  KeywordSheet sheet_;
  JsonWriter& json_;
};

}  // namespace

std::string KeywordSheetJson(const std::vector<NamedKeywords>& reports) {
  return JsonText([&](JsonWriter& json) { SheetWriter(reports, json).Write(); });
}

std::string KeywordSheetCsv(const std::vector<NamedKeywords>& reports) {
  const KeywordSheet sheet = MakeKeywordSheet(reports);
  std::string csv = "dictionary,category,group";
  for (const SheetColumn& column : sheet.columns)
    csv += "," + CsvField(column.name);
  csv += ",all\r\n";
  for (const SheetTable& table : sheet.tables) {
    const std::string& dictionary = reports[0].report.dictionaries[table.dictionary].name;
    const auto add = [&](const SheetLine& line) {
      csv +=
          fmt::format("{},{},{}", CsvField(dictionary), CsvField(line.name), CsvField(line.group));
      for (const SheetFigure& figure : line.columns)
        csv += fmt::format(",{}", figure.bytes);
      csv += fmt::format(",{}\r\n", line.all.bytes);
    };
    for (const SheetLine& line : table.categories)
      add(line);
    add(table.others);
    if (!table.untrackable_bytes)
      continue;
    csv += fmt::format("{},{},", CsvField(dictionary), query::kUntrackable);
    for (const query::KeywordTable* const of : table.columns)
      csv += of->untrackable_bytes ? fmt::format(",{}", *of->untrackable_bytes) : ",";
    csv += fmt::format(",{}\r\n", *table.untrackable_bytes);
  }
  return csv;
}

}  // namespace vramscope::output
