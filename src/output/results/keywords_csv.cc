// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "output/devices.h"
#include "output/keywords.h"
#include "output/results/csv.h"

namespace vramscope::output {
namespace {

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
