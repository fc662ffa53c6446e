// SPDX-License-Identifier: Apache-2.0
#include "output/devices.h"
#include "output/out_of_memory.h"
#include "output/results/json_parts.h"
#include "tables/row_of.h"
#include "util/json_writer.h"

namespace vramscope::output {
namespace {

using util::JsonWriter;

void WriteNames(const char* key, const std::vector<query::NamedBytes>& names, JsonWriter& json) {
  WriteList(json, key, names, [](const query::NamedBytes& name, JsonWriter& out) {
    out.Field("name", name.name);
    out.Field("bytes", name.bytes);
    out.Field("count", name.count);
  });
}

void WriteXlaPool(const query::XlaPool& pool, JsonWriter& json) {
  json.BeginObject();
  json.Field("limit_bytes", pool.limit_bytes);
  json.Field("in_use_bytes", pool.in_use_bytes);
  json.Field("largest_free_bytes", pool.largest_free_bytes);
  WriteList(json, "arrays", pool.arrays, [](const query::XlaPool::Arrays& arrays, JsonWriter& out) {
    out.Field("shape", arrays.shape);
    out.Field("bytes", arrays.bytes);
    out.Field("count", arrays.count);
  });
  json.EndObject();
}

void WriteExplained(const query::OutOfMemory& what,
                    const tables::Recording& recording,
                    JsonWriter& json) {
  json.BeginObject();
  json.Field("time_ns", what.refusal.time_ns);
  json.Field("device", DeviceIndex(recording, what.device));
  json.Field("pid", PidOf(recording, what.process));
  json.Field("requested_bytes", what.refusal.requested_bytes);
  TextOrNull(json, "place", what.place);
  TextOrNull(json, "layer", what.layer);
  json.Field("total_bytes", what.total_bytes);
  json.Field("used_bytes", what.used_bytes);
  json.Key("free_bytes");
  if (what.free_bytes)
    json.Uint(*what.free_bytes);
  else
    json.Null();
  json.Field("free_in_segments_bytes", what.free_in_segments_bytes);
  json.Field("largest_free_range_bytes", what.largest_free_range_bytes);
  json.Field("cause", what.cause);
  WriteList(json, "holders", what.holders, [](const query::MemoryHolder& holder, JsonWriter& out) {
    out.Field("name", holder.name);
    out.Field("bytes", holder.bytes);
    out.Field("count", holder.count);
    out.Field("largest_bytes", holder.largest_bytes);
    TextOrNull(out, "place", holder.place);
    TextOrNull(out, "layer", holder.layer);
  });
  WriteNames("categories", what.categories, json);
  WriteNames("layers", what.layers, json);
  WriteNames("lines", what.lines, json);
  WriteList(json, "pins", what.pins, [](const query::PinnedSegment& pin, JsonWriter& out) {
    out.Field("size_bytes", pin.size_bytes);
    out.Field("free_bytes", pin.free_bytes);
    out.Field("blocks", pin.blocks);
    out.Field("block_bytes", pin.block_bytes);
    TextOrNull(out, "place", pin.place);
    TextOrNull(out, "layer", pin.layer);
  });
  json.Key("xla_pool");
  if (what.xla_pool.limit_bytes == 0)
    json.Null();
  else
    WriteXlaPool(what.xla_pool, json);
  WriteList(json, "advice", what.advice, [](const query::Advice& advice, JsonWriter& out) {
    out.Field("text", advice.text);
    out.Field("saves_bytes", advice.saves_bytes);
    out.Field("how", advice.how);
  });
  json.EndObject();
}

}  // namespace

std::string OutOfMemoryJson(const std::vector<query::Refusal>& refusals,
                            const std::vector<query::OutOfMemory>& explained,
                            const tables::Recording& recording) {
  return JsonText([&](JsonWriter& json) {
    json.BeginObject();
    json.Field("schema", kOutOfMemorySchema);
    WriteList(json, "refusals", refusals, [&](const query::Refusal& refusal, JsonWriter& out) {
      out.Field("time_ns", refusal.time_ns);
      out.Field("device",
                DeviceIndex(recording, RowOf(recording.tables().accounts, refusal.account).device));
      out.Field("requested_bytes", refusal.requested_bytes);
      out.Field("asked_driver_bytes", refusal.asked_driver_bytes);
      out.Field("attempts", uint64_t{refusal.attempts});
      TextOrNull(out, "api", recording.string(refusal.api));
      out.Field("served", refusal.served);
    });
    json.Key("explained");
    json.BeginArray();
    for (const query::OutOfMemory& what : explained)
      WriteExplained(what, recording, json);
    json.EndArray();
    json.EndObject();
  });
}

}  // namespace vramscope::output
