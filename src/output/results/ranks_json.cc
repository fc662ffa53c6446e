// SPDX-License-Identifier: Apache-2.0
#include "output/ranks.h"
#include "output/results/json_parts.h"
#include "util/json_writer.h"

namespace vramscope::output {

using util::JsonWriter;

void WriteRanksJson(const query::RankReport& report,
                    const std::vector<std::string>& unread,
                    JsonWriter& json) {
  json.BeginObject();
  json.Field("schema", kRanksSchema);
  json.Field("bytes", report.bytes);
  BytesByName(json, "categories", report.categories);
  json.Field("processes_without_memory", report.processes_without_memory);
  json.Field("first_wall_ns", report.first_wall_ns);
  json.Field("starts_apart_ns", report.starts_apart_ns);
  NumberList(json, "missing", report.missing);
  json.Field("uneven", report.IsUneven());
  const bool compared = !report.ranks.empty() && report.not_compared.empty();
  TextOrNull(json, "not_compared", report.not_compared);
  TextOrNull(json, "median", compared ? report.ranks[report.median].name : "");
  TextOrNull(json, "heaviest", compared ? report.ranks[report.heaviest].name : "");
  WriteList(json, "excess", report.excess, [](const auto& excess, JsonWriter& out) {
    TextOrNull(out, "layer", excess.layer);
    out.Field("category", excess.category);
    out.Field("bytes", excess.bytes);
  });
  WriteList(json, "ranks", report.ranks, [&](const query::RankMemory& rank, JsonWriter& out) {
    out.Field("name", rank.name);
    out.Field("rank", int64_t{rank.number});
    out.Field("file", rank.file);
    out.Field("program", rank.program);
    out.Field("host", rank.host);
    out.Field("pid", uint64_t{rank.pid});
    out.Field("device", int64_t{rank.device});
    out.Field("on", rank.on);
    out.Field("bytes", rank.bytes);
    out.Field("total_bytes", rank.total_bytes);
    out.Field("peak_wall_ns", rank.peak_wall_ns);
    BytesByName(out, "categories", rank.categories);
  });
  TextList(json, "unread", unread);
  json.EndObject();
}

std::string RanksJson(const query::RankReport& report, const std::vector<std::string>& unread) {
  return JsonText([&](JsonWriter& json) { WriteRanksJson(report, unread, json); });
}

}  // namespace vramscope::output
