// SPDX-License-Identifier: Apache-2.0
#include "report/json.h"

#include <optional>
#include <string>
#include <vector>

#include "report/devices.h"
#include "report/json_list.h"

namespace vramscope::report {
namespace {

using util::JsonWriter;

template <class T>
void OptionalField(JsonWriter& json, const char* key, const std::optional<T>& value) {
  if (value) {
    json.Field(key, *value);
  } else {
    json.Key(key);
    json.Null();
  }
}

void WriteDevice(const engine::DeviceReport& device, JsonWriter& json) {
  json.Field("index", device.index);
  json.Field("kind", DeviceKindName(device.kind));
  json.Key("uuid");
  device.uuid.empty() ? json.Null() : json.String(device.uuid);
  json.Field("name", device.name);
  OptionalField(json, "total_bytes", device.total_bytes);
  OptionalField(json, "nvml_bytes", device.nvml_bytes);
  json.Field("ledger_bytes", device.ledger_bytes);
  OptionalField(json, "residual_bytes", device.residual_bytes);
  json.Key("at");
  json.BeginObject();
  json.Field("kind", device.at_kind);
  json.Field("time_ns", device.at_ns);
  OptionalField(json, "iteration", device.at_iteration);
  json.EndObject();
}

void WriteProcess(const engine::Report& report,
                  const engine::ProcessReport& process,
                  JsonWriter& json) {
  json.Field("device", DeviceIndex(report, process.device));
  json.Field("pid", process.pid);
  OptionalField(json, "rank", process.rank);
  json.Field("command", process.command);
  OptionalField(json, "nvml_bytes", process.nvml_bytes);
  json.Field("ledger_bytes", process.ledger_bytes);
  OptionalField(json, "residual_bytes", process.residual_bytes);
}

void WriteRow(const engine::Report& report, const engine::ReportRow& row, JsonWriter& json) {
  json.Field("device", DeviceIndex(report, row.device));
  OptionalField(json, "pid", row.pid);
  json.Key("path");
  json.BeginArray();
  for (const std::string& level : row.path)
    json.String(level);
  json.EndArray();
  json.Field("bytes", row.bytes);
  json.Field("count", row.count);
}

void WriteCategory(const engine::Report& report,
                   const engine::CategoryEntry& entry,
                   JsonWriter& json) {
  json.Field("device", DeviceIndex(report, entry.device));
  json.Field("category", entry.category);
  json.Field("bytes", entry.bytes);
  json.Field("count", entry.count);
}

void WriteModule(const engine::Report& report, const engine::ModuleEntry& entry, JsonWriter& json) {
  json.Field("device", DeviceIndex(report, entry.device));
  json.Field("module", entry.module);
  json.Field("type", entry.type);
  json.Field("bytes", entry.bytes);
  json.Field("count", entry.count);
  json.Key("categories");
  json.BeginObject();
  for (const auto& [category, bytes] : entry.categories)
    json.Field(category, bytes);
  json.EndObject();
}

void WriteLoss(const trace::Loss& loss, JsonWriter& json) {
  json.Field("name", loss.name);
  json.Field("count", loss.count);
  json.Field("bytes", loss.bytes);
}

void WriteInvariant(const engine::Invariant& invariant, JsonWriter& json) {
  json.Field("name", invariant.name);
  json.Field("holds", invariant.holds);
  json.Field("detail", invariant.detail);
}

}  // namespace

void WriteReportJson(const engine::Report& report, JsonWriter& json) {
  json.BeginObject();
  json.Field("schema", kReportSchema);
  WriteList(json, "devices", report.devices, WriteDevice);
  WriteList(json, "processes", report.processes,
            [&](const auto& process, JsonWriter& out) { WriteProcess(report, process, out); });
  WriteList(json, "rows", report.rows,
            [&](const auto& row, JsonWriter& out) { WriteRow(report, row, out); });
  WriteList(json, "categories", report.categories,
            [&](const auto& entry, JsonWriter& out) { WriteCategory(report, entry, out); });
  WriteList(json, "modules", report.top_modules,
            [&](const auto& entry, JsonWriter& out) { WriteModule(report, entry, out); });
  json.Key("blocks");
  json.BeginObject();
  json.Field("bytes", report.block_bytes);
  json.Field("with_category_bytes", report.block_bytes_with_category);
  json.Field("with_place_bytes", report.block_bytes_with_place);
  json.EndObject();
  WriteList(json, "losses", report.losses, WriteLoss);
  WriteList(json, "invariants", report.invariants, WriteInvariant);
  json.EndObject();
}

std::string ReportJson(const engine::Report& report) {
  std::string text;
  JsonWriter json(&text, 1);
  WriteReportJson(report, json);
  json.Finish();
  return text;
}

std::string ReportsJson(const std::vector<NamedReport>& reports) {
  if (reports.size() == 1)
    return ReportJson(reports[0].report);
  std::string text;
  JsonWriter json(&text, 1);
  json.BeginArray();
  for (const NamedReport& named : reports)
    WriteReportJson(named.report, json);
  json.EndArray();
  json.Finish();
  return text;
}

}  // namespace vramscope::report
