// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <type_traits>
#include <vector>

#include "output/devices.h"
#include "output/frames.h"
#include "output/results/csv.h"
#include "query/dimensions/frames.h"
#include "query/results.h"

// Rows of results.def as tables (RFC 4180): a column each that VisitColumns() has.
namespace vramscope::output {

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

}  // namespace vramscope::output
