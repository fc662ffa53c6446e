// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "output/devices.h"
#include "output/iterations.h"
#include "output/results/json_parts.h"
#include "query/history/by_category.h"
#include "util/json_writer.h"

namespace vramscope::output {
namespace {

using util::JsonWriter;

void WriteCategories(const char* key, const std::vector<uint64_t>& bytes, JsonWriter& json) {
  json.Key(key);
  json.BeginObject();
  for (const format::Category category : format::kAllCategories)
    json.Field(format::CategoryName(category), query::BytesOf(bytes, category));
  json.EndObject();
}

void WriteIteration(const tables::Recording& recording,
                    const query::Iteration& iteration,
                    JsonWriter& json) {
  json.Field("number", iteration.number);
  json.Field("pid", PidOf(recording, iteration.process));
  json.Field("device", DeviceIndex(recording, iteration.device));
  json.Field("begin_ns", iteration.begin_ns);
  json.Field("end_ns", iteration.end_ns);
  json.Field("peak_bytes", iteration.peak_bytes);
  json.Field("peak_ns", iteration.peak_ns);
  json.Field("end_bytes", iteration.end_bytes);
  json.Field("peak_allocated", iteration.peak_allocated);
  json.Field("end_allocated", iteration.end_allocated);
  json.Field("peak_reserved", iteration.peak_reserved);
  json.Field("end_reserved", iteration.end_reserved);
  json.Field("backward_temporary_peak", iteration.backward_temporary_peak);
  json.Field("before_recording_peak", iteration.before_recording_peak);
  WriteCategories("categories_peak", iteration.category_peak, json);
  WriteCategories("categories_end", iteration.category_end, json);
}

}  // namespace

std::string IterationsJson(const query::Iterations& iterations,
                           const tables::Recording& recording) {
  return JsonText([&](JsonWriter& json) {
    json.BeginObject();
    json.Field("schema", kIterationsSchema);
    json.Field("source", iterations.source);
    WriteList(
        json, "iterations", iterations.iterations,
        [&](const auto& iteration, JsonWriter& out) { WriteIteration(recording, iteration, out); });
    WriteList(json, "parameters", iterations.parameters,
              [&](const auto& parameter, JsonWriter& out) {
                out.Field("name", parameter.name);
                out.Field("pid", PidOf(recording, parameter.process));
                out.Field("device", DeviceIndex(recording, parameter.device));
                out.Field("parameter", parameter.parameter);
                out.Field("gradient", parameter.gradient);
                out.Field("optimizer_state", parameter.optimizer_state);
              });
    json.EndObject();
  });
}

std::string IterationsCsv(const query::Iterations& iterations, const tables::Recording& recording) {
  std::string csv =
      "number,pid,device,begin_ns,end_ns,peak_bytes,peak_ns,end_bytes,peak_allocated,end_allocated,"
      "peak_reserved,end_reserved,backward_temporary_peak,before_recording_peak";
  for (const char* suffix : {"_peak", "_end"}) {
    for (const format::Category category : format::kAllCategories)
      csv += "," + query::CategoryColumn(category, suffix);
  }
  csv += "\r\n";
  for (const query::Iteration& row : iterations.iterations) {
    csv += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{}", row.number,
                       PidOf(recording, row.process), DeviceMark(recording, row.device),
                       row.begin_ns, row.end_ns, row.peak_bytes, row.peak_ns, row.end_bytes,
                       row.peak_allocated, row.end_allocated, row.peak_reserved, row.end_reserved,
                       row.backward_temporary_peak, row.before_recording_peak);
    for (const auto* bytes : {&row.category_peak, &row.category_end}) {
      for (const format::Category category : format::kAllCategories)
        csv += fmt::format(",{}", query::BytesOf(*bytes, category));
    }
    csv += "\r\n";
  }
  return csv;
}

}  // namespace vramscope::output
