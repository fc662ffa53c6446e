// SPDX-License-Identifier: Apache-2.0
#include "output/results/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

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

}  // namespace vramscope::output
