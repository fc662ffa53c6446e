// SPDX-License-Identifier: Apache-2.0
#include "report/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "report/devices.h"
#include "util/text_cell.h"

namespace vramscope::report {
namespace {

struct Column {
  std::string name;
  size_t level;  // of the row's path
};

std::vector<Column> PathColumns(const std::vector<NamedReport>& reports,
                                const std::vector<engine::Dimension>& by) {
  std::vector<Column> columns;
  if (!by.empty()) {
    for (size_t i = 0; i < by.size(); ++i) {
      // The table has a device column anyway; two of one name would break its readers.
      if (by[i] != engine::Dimension::kDevice)
        columns.push_back({engine::DimensionName(by[i]), i});
    }
    return columns;
  }
  size_t levels = 0;
  for (const NamedReport& named : reports) {
    for (const engine::ReportRow& row : named.report.rows)
      levels = std::max(levels, row.path.size());
  }
  for (size_t i = 0; i < levels; ++i)
    columns.push_back({fmt::format("level{}", i + 1), i});
  return columns;
}

}  // namespace

std::string CsvField(std::string_view text) {
  return util::CsvCell(text);
}

std::string ReportCsv(const std::vector<NamedReport>& reports,
                      const std::vector<engine::Dimension>& by) {
  const std::vector<Column> columns = PathColumns(reports, by);
  const bool several = reports.size() > 1;
  std::string csv = several ? "file,device,index,pid" : "device,index,pid";
  for (const Column& column : columns)
    csv += "," + column.name;
  csv += ",bytes,count\r\n";
  for (const NamedReport& named : reports) {
    for (const engine::ReportRow& row : named.report.rows) {
      if (several)
        csv += CsvField(named.file) + ",";
      const auto device =
          std::find_if(named.report.devices.begin(), named.report.devices.end(),
                       [&](const auto& candidate) { return candidate.device == row.device; });
      if (device != named.report.devices.end()) {
        csv += fmt::format("{},{}", DeviceMark(device->kind, device->index), device->index);
      } else {
        csv += ",";
      }
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

}  // namespace vramscope::report
