// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <map>

#include "output/keywords.h"
#include "output/names.h"

namespace vramscope::output {
namespace {

using query::KeywordTable;

bool IsShown(const query::Report& report, const query::DeviceReport& device) {
  return device.ledger_bytes > 0 || device.nvml_bytes.value_or(0) > 0 || report.devices.size() == 1;
}

// The last part of each path; of those that share one, all of it.
std::vector<std::string> NamesOf(const std::vector<NamedKeywords>& reports) {
  std::map<std::string, size_t> files;
  const auto last_part = [](const NamedKeywords& named) {
    const std::filesystem::path path(named.file);
    return path.has_filename() ? path.filename().string() : path.string();
  };
  for (const NamedKeywords& named : reports)
    ++files[last_part(named)];
  std::vector<std::string> names;
  for (const NamedKeywords& named : reports)
    names.push_back(files[last_part(named)] > 1 ? named.file : last_part(named));
  return names;
}

void Add(const SheetFigure& figure, size_t column, SheetLine* line) {
  line->columns[column] = figure;
  line->all.bytes += figure.bytes;
  line->all.count += figure.count;
}

// The line of that name, which is made where there is none.
SheetLine* LineOf(const std::string& name,
                  const std::string& group,
                  size_t columns,
                  std::vector<SheetLine>* lines) {
  const auto known = std::find_if(lines->begin(), lines->end(),
                                  [&](const SheetLine& line) { return line.name == name; });
  if (known != lines->end())
    return &*known;
  lines->push_back({name, group, std::vector<SheetFigure>(columns), {}});
  return &lines->back();
}

void AddColumn(const KeywordTable& table, size_t column, size_t columns, SheetTable* sheet) {
  sheet->columns.push_back(&table);
  sheet->row_bytes += table.row_bytes;
  if (table.expected_bytes) {
    sheet->expected_bytes = sheet->expected_bytes.value_or(0) + *table.expected_bytes;
    // Of made-up figures the sum may be beyond its type.
    sheet->untrackable_bytes =
        static_cast<int64_t>(static_cast<uint64_t>(sheet->untrackable_bytes.value_or(0)) +
                             static_cast<uint64_t>(table.untrackable_bytes.value_or(0)));
  }
  for (const query::KeywordCategory& category : table.categories)
    Add({category.bytes, category.count}, column,
        LineOf(category.name, category.group, columns, &sheet->categories));
  Add({table.others.bytes, table.others.count}, column, &sheet->others);
  for (const query::KeywordGroup& group : table.groups)
    Add({group.bytes, group.count}, column, LineOf(group.name, "", columns, &sheet->groups));
}

}  // namespace

KeywordSheet MakeKeywordSheet(const std::vector<NamedKeywords>& reports) {
  KeywordSheet sheet;
  const std::vector<std::string> names = NamesOf(reports);
  for (size_t i = 0; i < reports.size(); ++i) {
    const query::Report& report = reports[i].report.report;
    const auto shown = std::count_if(report.devices.begin(), report.devices.end(),
                                     [&](const auto& device) { return IsShown(report, device); });
    for (const query::DeviceReport& device : report.devices) {
      if (!IsShown(report, device))
        continue;
      const std::string mark =
          shown > 1 ? " " + DeviceMark(device.kind, device.index) : std::string();
      sheet.columns.push_back({&reports[i], &device, names[i] + mark});
    }
  }
  const size_t columns = sheet.columns.size();
  const size_t dictionaries = reports.empty() ? 0 : reports[0].report.dictionaries.size();
  for (size_t dictionary = 0; dictionary < dictionaries; ++dictionary) {
    SheetTable& table = sheet.tables.emplace_back();
    table.dictionary = dictionary;
    table.others = {query::kOthers, "", std::vector<SheetFigure>(columns), {}};
    for (size_t i = 0; i < columns; ++i) {
      const SheetColumn& column = sheet.columns[i];
      for (const KeywordTable& of : column.of->report.tables) {
        if (of.dictionary == dictionary && of.device == column.device->device)
          AddColumn(of, i, columns, &table);
      }
    }
    // The sum of what each should have.
    if (table.expected_bytes) {
      for (const KeywordTable* const of : table.columns)
        *table.expected_bytes += of->expected_bytes ? 0 : of->row_bytes;
    }
    std::stable_sort(table.categories.begin(), table.categories.end(),
                     [](const auto& a, const auto& b) { return a.all.bytes > b.all.bytes; });
  }
  return sheet;
}

}  // namespace vramscope::output
