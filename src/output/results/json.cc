// SPDX-License-Identifier: Apache-2.0
#include "output/results/json.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "output/devices.h"
#include "output/results/json_parts.h"
#include "query/dimensions/frames.h"
#include "query/report/unexplained.h"

namespace vramscope::output {
namespace {

using util::JsonWriter;

void WritePeak(const std::string& name,
               const std::optional<query::PeakFigure>& peak,
               JsonWriter& json) {
  std::optional<uint64_t> bytes;
  std::optional<int64_t> time_ns;
  if (peak) {
    bytes = peak->bytes;
    time_ns = peak->time_ns;
  }
  NumberOrNull(json, (name + "_bytes").c_str(), bytes);
  NumberOrNull(json, (name + "_ns").c_str(), time_ns);
}

void WriteDevice(const query::DeviceReport& device, JsonWriter& json) {
  WriteDeviceName(device, json);
  NumberOrNull(json, "total_bytes", device.total_bytes);
  NumberOrNull(json, "nvml_bytes", device.nvml_bytes);
  json.Field("ledger_bytes", device.ledger_bytes);
  NumberOrNull(json, "residual_bytes", device.residual_bytes);
  json.Field("in_transit_bytes", device.in_transit_bytes);
  json.Field("allocated_bytes", device.allocated_bytes);
  json.Field("reserved_bytes", device.reserved_bytes);
  WritePeak("allocated_peak", device.allocated_peak, json);
  WritePeak("own_peak", device.own_peak, json);
  json.Field("unbacked_bytes", device.unbacked_bytes);
  WriteInstant(device, json);
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

// What follows begins with a device, which is written already.

void WriteProcess(const query::ProcessReport& process, JsonWriter& json) {
  json.Field("pid", process.pid);
  NumberOrNull(json, "rank", process.rank);
  json.Field("command", process.command);
  NumberOrNull(json, "nvml_bytes", process.nvml_bytes);
  json.Field("ledger_bytes", process.ledger_bytes);
  NumberOrNull(json, "residual_bytes", process.residual_bytes);
}

void WriteRow(const query::ReportRow& row, JsonWriter& json) {
  NumberOrNull(json, "pid", row.pid);
  TextList(json, "path", row.path);
  json.Field("bytes", row.bytes);
  json.Field("count", row.count);
}

void WriteCategory(const query::CategoryEntry& entry, JsonWriter& json) {
  json.Field("category", entry.category);
  json.Field("bytes", entry.bytes);
  json.Field("count", entry.count);
}

void WriteModule(const query::ModuleEntry& entry, JsonWriter& json) {
  json.Field("module", entry.module);
  json.Field("type", entry.type);
  json.Field("bytes", entry.bytes);
  json.Field("count", entry.count);
  BytesByName(json, "categories", entry.categories);
}

void WriteOverflow(const query::Overflow& overflow, JsonWriter& json) {
  json.Field("time_ns", overflow.time_ns);
  json.Field("used_bytes", overflow.used_bytes);
  json.Field("held_bytes", overflow.held_bytes);
  json.Field("host_bytes", overflow.host_bytes);
  json.Field("most_host_bytes", overflow.most_host_bytes);
  BytesByName(json, "categories", overflow.all_categories);
  BytesByName(json, "host_categories", overflow.categories);
  BytesByName(json, "host_layers", overflow.layers);
  BytesByName(json, "host_lines", overflow.lines);
  json.Field("card_gb", uint64_t{overflow.card_gb});
  NumberOrNull(json, "batch_percent", overflow.batch_percent);
}

// What stands at a line of the program: at the instant, or over the whole run.
void WriteLine(const query::TopEntry& entry, JsonWriter& json) {
  json.Field("line", entry.place);
  json.Field("source", entry.source);
  json.Field("bytes", entry.bytes);
  json.Field("count", entry.count);
}

void WriteCached(const query::CachedMemory& cached, JsonWriter& json) {
  json.Field("pid", cached.pid);
  json.Field("free_bytes", cached.free_bytes);
  json.Field("segment_ns", cached.segment_ns);
  json.Field("segment_bytes", cached.segment_bytes);
  json.Field("request_bytes", cached.request_bytes);
  json.Field("line", cached.place);
  json.Field("freed_since_bytes", cached.freed_since_bytes);
  json.Field("too_small_bytes", cached.too_small_bytes);
  json.Field("largest_piece_bytes", cached.largest_piece_bytes);
  json.Field("elsewhere_bytes", cached.elsewhere_bytes);
  json.Field("graph_bytes", cached.graph_bytes);
}

void WriteStack(const query::ShownStacks& stacks, const query::TopEntry& entry, JsonWriter& json) {
  json.Field("line", entry.place);
  TextList(json, "stack", stacks.Texts(entry.stack));
  json.Field("bytes", entry.bytes);
  json.Field("count", entry.count);
}

void WriteResidual(const query::ResidualSummary& residual, JsonWriter& json) {
  json.Field("samples", residual.samples);
  json.Field("samples_in_transit", residual.samples_in_transit);
  json.Field("worst_bytes", residual.worst_bytes);
  json.Field("worst_at_ns", residual.worst_at_ns);
  json.Field("p99_bytes", residual.p99_bytes);
  json.Field("estimated_bytes", residual.estimated_bytes);
  json.Field("ledger_peak_bytes", residual.ledger_peak_bytes);
}

void WriteUnexplained(const query::Unexplained& unexplained, JsonWriter& json) {
  json.Field("bytes", unexplained.bytes);
  json.Field("since_ns", unexplained.since_ns);
  json.Field("near", unexplained.near);
}

void WriteTimeline(const query::Timeline& timeline, JsonWriter& json) {
  TextList(json, "groups", timeline.groups);
  NumberList(json, "time_ns", timeline.time_ns);
  NumberLists(json, "peak_bytes", timeline.peak);
  json.Key("nvml");
  json.BeginArray();
  for (const auto& [time_ns, bytes] : timeline.nvml)
    WriteTuple(json, time_ns, bytes);
  json.EndArray();
  if (!timeline.unbacked.empty())
    NumberList(json, "unbacked_bytes", timeline.unbacked);
}

}  // namespace

void WriteDeviceName(const query::DeviceReport& device, JsonWriter& json) {
  json.Field("index", device.index);
  json.Field("kind", DeviceKindName(device.kind));
  TextOrNull(json, "uuid", device.uuid);
  json.Field("name", device.name);
}

void WriteInstant(const query::DeviceReport& device, JsonWriter& json) {
  json.Key("at");
  json.BeginObject();
  json.Field("kind", device.at_kind);
  json.Field("time_ns", device.at_ns);
  NumberOrNull(json, "iteration", device.at_iteration);
  json.EndObject();
}

void WriteReportJson(const query::Report& report,
                     const tables::Recording& recording,
                     const std::vector<query::Timeline>& timelines,
                     JsonWriter& json) {
  const auto list = [&](const char* key, const auto& items, const auto& write) {
    WriteList(json, key, items, [&](const auto& item, JsonWriter& out) {
      out.Field("device", DeviceIndex(report, item.device));
      write(item, out);
    });
  };
  json.BeginObject();
  json.Field("schema", kReportSchema);
  json.Field("sampled", report.sampled);
  WriteList(json, "devices", report.devices, WriteDevice);
  list("processes", report.processes, WriteProcess);
  list("rows", report.rows, WriteRow);
  list("unbacked", report.unbacked, WriteRow);
  list("categories", report.categories, WriteCategory);
  list("modules", report.top_modules, WriteModule);
  list("top_lines", report.top_lines, WriteLine);
  const query::ShownStacks stacks(recording);
  list("top_stacks", report.top_stacks,
       [&](const auto& entry, JsonWriter& out) { WriteStack(stacks, entry, out); });
  list("top_churn", report.top_churn, WriteLine);
  list("free_lines", report.free_lines, WriteLine);
  if (!report.cached.empty())
    list("cached", report.cached, WriteCached);
  json.Key("blocks");
  json.BeginObject();
  json.Field("bytes", report.block_bytes);
  json.Field("with_category_bytes", report.block_bytes_with_category);
  json.Field("with_place_bytes", report.block_bytes_with_place);
  json.EndObject();
  list("residuals", report.residuals, WriteResidual);
  if (const auto unexplained = query::FindUnexplained(recording); !unexplained.empty())
    list("unexplained", unexplained, WriteUnexplained);
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
  return JsonText([&](JsonWriter& json) { WriteReportJson(report, recording, timelines, json); });
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
