// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "output/diff.h"
#include "output/results/json_parts.h"
#include "util/json_writer.h"

namespace vramscope::output {
namespace {

using util::JsonWriter;

void WriteBytes(uint64_t a, uint64_t b, JsonWriter& json) {
  json.Field("a_bytes", a);
  json.Field("b_bytes", b);
  json.Field("delta_bytes", static_cast<int64_t>(b) - static_cast<int64_t>(a));
}

void WriteRow(const query::DiffRow& row, JsonWriter& json) {
  TextList(json, "path", row.path);
  WriteBytes(row.a_bytes, row.b_bytes, json);
  json.Field("a_count", row.a_count);
  json.Field("b_count", row.b_count);
  if (row.callers.empty())
    return;
  WriteList(json, "callers", row.callers, [](const query::DiffCaller& caller, JsonWriter& out) {
    out.Field("line", caller.line);
    WriteBytes(caller.a_bytes, caller.b_bytes, out);
  });
}

void WriteRank(const query::DiffRank& rank, JsonWriter& json) {
  json.Key("rank");
  rank.number < 0 ? json.Null() : json.Int(rank.number);
  json.Field("name", rank.name);
  json.Field("peak_bytes", rank.peak_bytes);
  json.Field("compared", rank.compared);
  json.Field("outlier", rank.outlier);
}

void WriteSource(const char* key, const DiffSource& source, JsonWriter& json) {
  json.Key(key);
  json.BeginObject();
  json.Field("file", source.file);
  json.Field("command", source.command);
  json.EndObject();
}

}  // namespace

void WriteDiffJson(const query::Diff& diff,
                   const DiffSource& a,
                   const DiffSource& b,
                   JsonWriter& json) {
  json.BeginObject();
  json.Field("schema", kDiffSchema);
  WriteSource("a", a, json);
  WriteSource("b", b, json);
  json.Field("same", diff.same);
  json.Key("peak");
  json.BeginObject();
  WriteBytes(diff.a_bytes, diff.b_bytes, json);
  json.EndObject();
  json.Field("a_unbacked_bytes", diff.a_unbacked_bytes);
  json.Field("b_unbacked_bytes", diff.b_unbacked_bytes);
  json.Field("threshold_bytes", diff.threshold_bytes);
  json.Field("driver_threshold_bytes", diff.driver_threshold_bytes);
  TextList(json, "causes", diff.causes);
  TextList(json, "notes", diff.notes);
  WriteList(json, "devices", diff.devices, [](const auto& device, JsonWriter& out) {
    out.Field("device", device.name);
    out.Field("compared", device.compared);
    WriteBytes(device.a_bytes, device.b_bytes, out);
  });
  json.Key("levels");
  WriteTexts(json, query::kDiffLevels);
  WriteList(json, "rows", diff.rows, WriteRow);
  WriteList(json, "categories", diff.categories, [](const auto& row, JsonWriter& out) {
    out.Field("category", row.path[0]);
    WriteBytes(row.a_bytes, row.b_bytes, out);
  });
  WriteList(json, "moves", diff.moves, [](const auto& move, JsonWriter& out) {
    TextList(out, "path", move.path);
    out.Field("from", move.from);
    out.Field("bytes", move.bytes);
  });
  WriteList(json, "start", diff.start, WriteRow);
  WriteList(json, "iterations", diff.iterations, [](const auto& iteration, JsonWriter& out) {
    out.Field("number", iteration.number);
    out.Field("a_peak_bytes", iteration.a_peak_bytes);
    out.Field("b_peak_bytes", iteration.b_peak_bytes);
    out.Field("a_end_bytes", iteration.a_end_bytes);
    out.Field("b_end_bytes", iteration.b_end_bytes);
  });
  if (!diff.a_ranks.empty()) {
    json.Key("ranks");
    json.BeginObject();
    WriteList(json, "a", diff.a_ranks, WriteRank);
    WriteList(json, "b", diff.b_ranks, WriteRank);
    json.EndObject();
  }
  json.EndObject();
}

std::string DiffJson(const query::Diff& diff, const DiffSource& a, const DiffSource& b) {
  return JsonText([&](JsonWriter& json) { WriteDiffJson(diff, a, b, json); });
}

}  // namespace vramscope::output
