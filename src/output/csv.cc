// SPDX-License-Identifier: Apache-2.0
#include "output/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "output/devices.h"
#include "util/text_cell.h"

namespace vramscope::output {
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

}  // namespace

std::string CsvField(std::string_view text) {
  return util::CsvCell(text);
}

std::string ReportCsv(const std::vector<NamedReport>& reports,
                      const std::vector<query::Dimension>& by) {
  const std::vector<Column> columns = PathColumns(reports, by);
  const bool several = reports.size() > 1;
  std::string csv = several ? "file,device,index,pid" : "device,index,pid";
  for (const Column& column : columns)
    csv += "," + column.name;
  csv += ",bytes,count\r\n";
  for (const NamedReport& named : reports) {
    for (const query::ReportRow& row : named.report.rows) {
      if (several)
        csv += CsvField(named.file) + ",";
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

}  // namespace vramscope::output
