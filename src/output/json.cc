// SPDX-License-Identifier: Apache-2.0
#include "output/json.h"

#include <string>
#include <vector>

#include "output/devices.h"
#include "output/json_parts.h"
#include "query/frames.h"

namespace vramscope::output {
namespace {

using util::JsonWriter;

void WriteDevice(const query::DeviceReport& device, JsonWriter& json) {
  json.Field("index", device.index);
  json.Field("kind", DeviceKindName(device.kind));
  TextOrNull(json, "uuid", device.uuid);
  json.Field("name", device.name);
  NumberOrNull(json, "total_bytes", device.total_bytes);
  NumberOrNull(json, "nvml_bytes", device.nvml_bytes);
  json.Field("ledger_bytes", device.ledger_bytes);
  NumberOrNull(json, "residual_bytes", device.residual_bytes);
  json.Field("in_transit_bytes", device.in_transit_bytes);
  json.Key("at");
  json.BeginObject();
  json.Field("kind", device.at_kind);
  json.Field("time_ns", device.at_ns);
  NumberOrNull(json, "iteration", device.at_iteration);
  json.EndObject();
}

void WriteProcess(const query::Report& report,
                  const query::ProcessReport& process,
                  JsonWriter& json) {
  json.Field("device", DeviceIndex(report, process.device));
  json.Field("pid", process.pid);
  NumberOrNull(json, "rank", process.rank);
  json.Field("command", process.command);
  NumberOrNull(json, "nvml_bytes", process.nvml_bytes);
  json.Field("ledger_bytes", process.ledger_bytes);
  NumberOrNull(json, "residual_bytes", process.residual_bytes);
}

void WriteRow(const query::Report& report, const query::ReportRow& row, JsonWriter& json) {
  json.Field("device", DeviceIndex(report, row.device));
  NumberOrNull(json, "pid", row.pid);
  TextList(json, "path", row.path);
  json.Field("bytes", row.bytes);
  json.Field("count", row.count);
}

void WriteCategory(const query::Report& report,
                   const query::CategoryEntry& entry,
                   JsonWriter& json) {
  json.Field("device", DeviceIndex(report, entry.device));
  json.Field("category", entry.category);
  json.Field("bytes", entry.bytes);
  json.Field("count", entry.count);
}

void WriteModule(const query::Report& report, const query::ModuleEntry& entry, JsonWriter& json) {
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

void WriteOverflow(const query::Report& report, const query::Overflow& overflow, JsonWriter& json) {
  const auto names = [&](const char* key, const std::vector<query::Overflow::Named>& list) {
    json.Key(key);
    json.BeginObject();
    for (const query::Overflow::Named& named : list)
      json.Field(named.name, named.bytes);
    json.EndObject();
  };
  json.Field("device", DeviceIndex(report, overflow.device));
  json.Field("time_ns", overflow.time_ns);
  json.Field("used_bytes", overflow.used_bytes);
  json.Field("held_bytes", overflow.held_bytes);
  json.Field("host_bytes", overflow.host_bytes);
  json.Field("most_host_bytes", overflow.most_host_bytes);
  names("categories", overflow.all_categories);
  names("host_categories", overflow.categories);
  names("host_layers", overflow.layers);
  names("host_lines", overflow.lines);
  json.Field("card_gb", uint64_t{overflow.card_gb});
  NumberOrNull(json, "batch_percent", overflow.batch_percent);
}

void WriteLoss(const query::Loss& loss, JsonWriter& json) {
  json.Field("name", loss.name);
  json.Field("count", loss.count);
  json.Field("bytes", loss.bytes);
}

void WriteInvariant(const query::Invariant& invariant, JsonWriter& json) {
  json.Field("name", invariant.name);
  json.Field("holds", invariant.holds);
  json.Field("detail", invariant.detail);
}

// What stands at a line of the program: at the instant, or over the whole run.
void WriteLine(const query::Report& report, const query::TopEntry& entry, JsonWriter& json) {
  json.Field("device", DeviceIndex(report, entry.device));
  json.Field("line", entry.place);
  json.Field("source", entry.source);
  json.Field("bytes", entry.bytes);
  json.Field("count", entry.count);
}

void WriteStack(const query::Report& report,
                const query::ShownStacks& stacks,
                const query::TopEntry& entry,
                JsonWriter& json) {
  json.Field("device", DeviceIndex(report, entry.device));
  json.Field("line", entry.place);
  TextList(json, "stack", stacks.Texts(entry.stack));
  json.Field("bytes", entry.bytes);
  json.Field("count", entry.count);
}

void WriteResidual(const query::Report& report,
                   const query::ResidualSummary& residual,
                   JsonWriter& json) {
  json.Field("device", DeviceIndex(report, residual.device));
  json.Field("samples", residual.samples);
  json.Field("samples_in_transit", residual.samples_in_transit);
  json.Field("worst_bytes", residual.worst_bytes);
  json.Field("worst_at_ns", residual.worst_at_ns);
  json.Field("p99_bytes", residual.p99_bytes);
  json.Field("estimated_bytes", residual.estimated_bytes);
  json.Field("ledger_peak_bytes", residual.ledger_peak_bytes);
}

void WriteTimeline(const query::Report& report, const query::Timeline& timeline, JsonWriter& json) {
  json.Field("device", DeviceIndex(report, timeline.device));
  TextList(json, "groups", timeline.groups);
  json.Key("time_ns");
  json.BeginArray();
  for (const int64_t time_ns : timeline.time_ns)
    json.Int(time_ns);
  json.EndArray();
  json.Key("peak_bytes");
  json.BeginArray();
  for (const std::vector<uint64_t>& group : timeline.peak) {
    json.BeginArray();
    for (const uint64_t bytes : group)
      json.Uint(bytes);
    json.EndArray();
  }
  json.EndArray();
  json.Key("nvml");
  json.BeginArray();
  for (const auto& [time_ns, bytes] : timeline.nvml) {
    json.BeginArray();
    json.Int(time_ns);
    json.Uint(bytes);
    json.EndArray();
  }
  json.EndArray();
}

}  // namespace

void WriteReportJson(const query::Report& report,
                     const tables::Recording& recording,
                     const std::vector<query::Timeline>& timelines,
                     JsonWriter& json) {
  const auto list = [&](const char* key, const auto& items, const auto& write) {
    WriteList(json, key, items,
              [&](const auto& item, JsonWriter& out) { write(report, item, out); });
  };
  json.BeginObject();
  json.Field("schema", kReportSchema);
  json.Field("sampled", report.sampled);
  WriteList(json, "devices", report.devices, WriteDevice);
  list("processes", report.processes, WriteProcess);
  list("rows", report.rows, WriteRow);
  list("categories", report.categories, WriteCategory);
  list("modules", report.top_modules, WriteModule);
  list("top_lines", report.top_lines, WriteLine);
  const query::ShownStacks stacks(recording);
  WriteList(json, "top_stacks", report.top_stacks,
            [&](const auto& entry, JsonWriter& out) { WriteStack(report, stacks, entry, out); });
  list("top_churn", report.top_churn, WriteLine);
  json.Key("blocks");
  json.BeginObject();
  json.Field("bytes", report.block_bytes);
  json.Field("with_category_bytes", report.block_bytes_with_category);
  json.Field("with_place_bytes", report.block_bytes_with_place);
  json.EndObject();
  list("residuals", report.residuals, WriteResidual);
  if (!report.overflow.empty())
    list("overflow", report.overflow, WriteOverflow);
  WriteList(json, "losses", report.losses, WriteLoss);
  WriteList(json, "invariants", report.invariants, WriteInvariant);
  if (!timelines.empty())
    list("timelines", timelines, WriteTimeline);
  json.EndObject();
}

std::string ReportJson(const query::Report& report,
                       const tables::Recording& recording,
                       const std::vector<query::Timeline>& timelines) {
  std::string text;
  JsonWriter json(&text, 1);
  WriteReportJson(report, recording, timelines, json);
  json.Finish();
  return text;
}

std::string JsonOfFiles(const std::vector<std::string>& objects) {
  if (objects.size() == 1)
    return objects[0];
  std::string text;
  for (const std::string& object : objects) {
    text += text.empty() ? "[\n" : ",\n";
    text.append(object, 0, object.find_last_not_of('\n') + 1);
  }
  return text + "\n]\n";
}

}  // namespace vramscope::output
