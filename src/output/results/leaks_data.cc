// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "output/devices.h"
#include "output/frames.h"
#include "output/leaks.h"
#include "output/results/csv.h"
#include "output/results/json_parts.h"
#include "query/history/by_category.h"
#include "util/json_writer.h"

namespace vramscope::output {
namespace {

using util::JsonWriter;

void WriteGrowth(const tables::Recording& recording,
                 const query::ShownStacks& stacks,
                 const query::Growth& growth,
                 bool growing,
                 JsonWriter& json) {
  json.Field("device", DeviceIndex(recording, growth.device));
  json.Field("place", growth.place);
  json.Field("module", growth.module);
  json.Field("class", growth.type);
  json.Field("category", growth.category);
  if (growing) {
    json.Field("bytes_per_iteration", growth.bytes_per_iteration);
    json.Field("first_bytes", growth.first_bytes);
    json.Field("last_bytes", growth.last_bytes);
    json.Field("count", growth.count);
    json.Field("steady", growth.steady);
  } else {
    json.Field("bytes", growth.last_bytes);
    json.Field("count", growth.count);
  }
  TextList(json, "stack", stacks.Texts(growth.stack));
}

void AddCsvLine(const char* list,
                const query::Growth& growth,
                const tables::Recording& recording,
                const query::ShownStacks& stacks,
                std::string* csv) {
  const std::string stack = Joined(stacks.Texts(growth.stack), ";");
  const bool growing = std::string_view(list) == "growing";
  *csv += fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{}\r\n", list, DeviceMark(recording, growth.device),
      CsvField(growth.place), CsvField(growth.module), CsvField(growth.type),
      CsvField(growth.category), growing ? fmt::format("{:.1f}", growth.bytes_per_iteration) : "",
      growing ? fmt::format("{}", growth.first_bytes) : "", growth.last_bytes, growth.count,
      growing ? (growth.steady ? "true" : "false") : "", CsvField(stack));
}

}  // namespace

std::string LeaksJson(const query::Leaks& leaks, const tables::Recording& recording) {
  return JsonText([&](JsonWriter& json) {
    const query::ShownStacks stacks(recording);
    json.BeginObject();
    json.Field("schema", kLeaksSchema);
    json.Field("iterations", leaks.iterations);
    json.Field("warm_up", leaks.warm_up);
    json.Field("iterations_needed", query::kFewestIterations);
    json.Field("enough_iterations", leaks.IsJudged());
    NumberOrNull(json, "bytes_per_iteration",
                 leaks.IsJudged() ? std::optional(leaks.bytes_per_iteration) : std::nullopt);
    NumberOrNull(json, "unexplained_bytes_per_iteration",
                 leaks.IsJudged() ? std::optional(leaks.unexplained_per_iteration) : std::nullopt);
    json.Field("processes_without_iterations", leaks.adopted);
    WriteList(json, "growing", leaks.growing, [&](const auto& growth, JsonWriter& out) {
      WriteGrowth(recording, stacks, growth, true, out);
    });
    WriteList(json, "never_freed", leaks.never_freed, [&](const auto& growth, JsonWriter& out) {
      WriteGrowth(recording, stacks, growth, false, out);
    });
    json.Key("expected_bytes");
    json.BeginObject();
    for (const format::Category category : format::kAllCategories) {
      if (const uint64_t bytes = query::BytesOf(leaks.not_listed, category); bytes > 0)
        json.Field(format::CategoryName(category), bytes);
    }
    json.EndObject();
    json.Key("unused_models");
    json.BeginObject();
    json.Field("count", leaks.unused.count);
    json.Field("bytes", leaks.unused.bytes);
    json.Field("names", leaks.unused.names);
    json.EndObject();
    json.Key("suppressed");
    json.BeginObject();
    json.Field("bytes", leaks.suppressed_bytes);
    json.Field("count", leaks.suppressed_count);
    json.EndObject();
    json.EndObject();
  });
}

std::string LeaksCsv(const query::Leaks& leaks, const tables::Recording& recording) {
  std::string csv =
      "list,device,place,module,class,category,bytes_per_iteration,first_bytes,bytes,count,steady,"
      "stack"
      "\r\n";
  // The verdict, and what the rows leave of it.
  csv += fmt::format("total,,{},,,,{},,,,,\r\n", CsvField(VerdictOf(leaks).text),
                     leaks.IsJudged() ? fmt::format("{:.1f}", leaks.bytes_per_iteration) : "");
  if (leaks.IsJudged() && std::abs(leaks.unexplained_per_iteration) >= 0.05)
    csv += fmt::format("unexplained,,,,,,{:.1f},,,,,\r\n", leaks.unexplained_per_iteration);
  const query::ShownStacks stacks(recording);
  for (const query::Growth& growth : leaks.growing)
    AddCsvLine("growing", growth, recording, stacks, &csv);
  for (const query::Growth& growth : leaks.never_freed)
    AddCsvLine("never_freed", growth, recording, stacks, &csv);
  return csv;
}

}  // namespace vramscope::output
