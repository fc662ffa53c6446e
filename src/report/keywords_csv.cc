// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "report/csv.h"
#include "report/devices.h"
#include "report/keywords.h"

namespace vramscope::report {
namespace {

void AddCategory(const std::string& head,
                 const engine::KeywordCategory& category,
                 std::string* csv) {
  for (const engine::KeywordEntry& entry : category.entries) {
    *csv += fmt::format("{},{},{},{},{},{},{},{}\r\n", head, CsvField(category.name),
                        CsvField(category.group), entry.dimension, CsvField(entry.name),
                        entry.bytes, entry.rows, entry.count);
  }
}

}  // namespace

std::string KeywordsCsv(const std::vector<NamedKeywords>& reports) {
  const bool several = reports.size() > 1;
  std::string csv = several ? "file," : "";
  csv += "device,index,dictionary,category,group,dimension,name,bytes,rows,count\r\n";
  for (const NamedKeywords& named : reports) {
    for (const engine::KeywordTable& table : named.report.tables) {
      const std::vector<engine::DeviceReport>& devices = named.report.report.devices;
      const auto device = std::find_if(devices.begin(), devices.end(), [&](const auto& candidate) {
        return candidate.device == table.device;
      });
      if (device == devices.end())
        continue;
      std::string head = several ? CsvField(named.file) + "," : "";
      head += fmt::format("{},{},{}", DeviceMark(device->kind, device->index), device->index,
                          CsvField(named.report.dictionaries[table.dictionary].name));
      for (const engine::KeywordCategory& category : table.categories)
        AddCategory(head, category, &csv);
      AddCategory(head, table.others, &csv);
      if (table.untrackable_bytes) {
        csv +=
            fmt::format("{},{},,,,{},,\r\n", head, engine::kUntrackable, *table.untrackable_bytes);
      }
    }
  }
  return csv;
}

}  // namespace vramscope::report
