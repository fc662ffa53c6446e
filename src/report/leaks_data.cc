// SPDX-License-Identifier: Apache-2.0
#include "report/leaks_data.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "report/csv.h"
#include "report/devices.h"
#include "report/json_list.h"
#include "report/places.h"
#include "util/json_writer.h"

namespace vramscope::report {
namespace {

using util::JsonWriter;

std::vector<std::string> FramesOutermostFirst(const trace::Trace& trace, trace::StackId stack) {
  const std::vector<trace::FrameId> ids = StackFrames(trace, stack);
  std::vector<std::string> frames;
  for (auto id = ids.rbegin(); id != ids.rend(); ++id)
    frames.push_back(engine::FormatFrame(trace, *id));
  return frames;
}

void WriteGrowth(const trace::Trace& trace,
                 const engine::Growth& growth,
                 bool growing,
                 JsonWriter& json) {
  json.Field("device", DeviceIndex(trace, growth.device));
  json.Field("place", growth.place);
  json.Field("module", growth.module);
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
  json.Key("stack");
  json.BeginArray();
  for (const std::string& frame : FramesOutermostFirst(trace, growth.stack))
    json.String(frame);
  json.EndArray();
}

void AddCsvLine(const char* list,
                const engine::Growth& growth,
                const trace::Trace& trace,
                std::string* csv) {
  std::string stack;
  for (const std::string& frame : FramesOutermostFirst(trace, growth.stack))
    stack += (stack.empty() ? "" : ";") + frame;
  const bool growing = std::string_view(list) == "growing";
  *csv +=
      fmt::format("{},{},{},{},{},{},{},{},{},{},{}\r\n", list, DeviceMark(trace, growth.device),
                  CsvField(growth.place), CsvField(growth.module), CsvField(growth.category),
                  growing ? fmt::format("{:.1f}", growth.bytes_per_iteration) : "",
                  growing ? fmt::format("{}", growth.first_bytes) : "", growth.last_bytes,
                  growth.count, growing ? (growth.steady ? "true" : "false") : "", CsvField(stack));
}

}  // namespace

std::string LeaksJson(const engine::Leaks& leaks, const trace::Trace& trace) {
  std::string text;
  JsonWriter json(&text, 1);
  json.BeginObject();
  json.Field("schema", kLeaksSchema);
  json.Field("iterations", leaks.iterations);
  json.Field("warm_up", leaks.warm_up);
  WriteList(json, "growing", leaks.growing,
            [&](const auto& growth, JsonWriter& out) { WriteGrowth(trace, growth, true, out); });
  WriteList(json, "never_freed", leaks.never_freed,
            [&](const auto& growth, JsonWriter& out) { WriteGrowth(trace, growth, false, out); });
  json.Key("suppressed");
  json.BeginObject();
  json.Field("bytes", leaks.suppressed_bytes);
  json.Field("count", leaks.suppressed_count);
  json.EndObject();
  json.EndObject();
  json.Finish();
  return text;
}

std::string LeaksCsv(const engine::Leaks& leaks, const trace::Trace& trace) {
  std::string csv =
      "list,device,place,module,category,bytes_per_iteration,first_bytes,bytes,count,steady,stack"
      "\r\n";
  for (const engine::Growth& growth : leaks.growing)
    AddCsvLine("growing", growth, trace, &csv);
  for (const engine::Growth& growth : leaks.never_freed)
    AddCsvLine("never_freed", growth, trace, &csv);
  return csv;
}

}  // namespace vramscope::report
