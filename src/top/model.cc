// SPDX-License-Identifier: Apache-2.0
#include "top/model.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <tuple>

#include "util/json.h"

namespace vramscope::cli {
namespace {

template <class Number>
void FieldOrNull(util::JsonWriter& json, std::string_view key, const std::optional<Number>& value) {
  if (value)
    return json.Field(key, *value);
  json.Key(key);
  json.Null();
}

template <class Items, class Function>
void Array(util::JsonWriter& json, std::string_view key, const Items& items, const Function& each) {
  json.Key(key);
  json.BeginArray();
  for (const auto& item : items) {
    json.BeginObject();
    each(item);
    json.EndObject();
  }
  json.EndArray();
}

void AddDetails(util::JsonWriter& json, const TopDetails& details) {
  json.Field("recording", details.recording);
  json.Field("ledger_bytes", details.bytes);
  FieldOrNull(json, "peak_bytes", details.peak_bytes);
  json.Field("reserved_bytes", details.reserved_bytes);
  Array(json, "categories", details.categories, [&](const TopCategory& category) {
    json.Field("category", category.name);
    json.Field("bytes", category.bytes);
    FieldOrNull(json, "growth_bytes_per_minute", category.growth);
  });
  Array(json, "lines", details.lines, [&](const query::TopLine& line) {
    json.Field("line", line.place);
    json.Field("source", line.source);
    json.Field("bytes", line.bytes);
    json.Field("count", line.count);
  });
}

}  // namespace

void SortProcesses(TopOrder order, std::vector<TopProcess>* processes) {
  const auto key = [order](const TopProcess& process) {
    const double growth = process.growth.value_or(-std::numeric_limits<double>::max());
    return std::tuple(order == TopOrder::kGrowth ? -growth : 0.0,
                      order == TopOrder::kName ? std::string_view(process.command) : "",
                      order == TopOrder::kPid ? process.pid : 0, ~process.bytes(), process.pid,
                      std::string_view(process.device));
  };
  std::sort(processes->begin(), processes->end(),
            [&](const TopProcess& a, const TopProcess& b) { return key(a) < key(b); });
}

std::string TopJson(const TopModel& model) {
  std::string text;
  util::JsonWriter json(&text, 2);
  json.BeginObject();
  json.Field("time_unix", model.unix_seconds);
  FieldOrNull(json, "no_nvml",
              model.no_nvml.empty() ? std::nullopt : std::optional<std::string>(model.no_nvml));
  Array(json, "gpus", model.gpus, [&](const TopGpu& gpu) {
    json.Field("index", gpu.index);
    json.Field("uuid", gpu.uuid);
    json.Field("name", gpu.name);
    json.Field("total_bytes", gpu.total_bytes);
    FieldOrNull(json, "used_bytes", gpu.used_bytes);
  });
  Array(json, "processes", model.processes, [&](const TopProcess& process) {
    json.Field("pid", process.pid);
    json.Field("user", process.user);
    json.Field("command", process.command);
    json.Field("device", process.device);
    json.Field("bytes", process.bytes());
    FieldOrNull(json, "nvml_bytes", process.nvml_bytes);
    FieldOrNull(json, "growth_bytes_per_minute", process.growth);
    json.Field("recorded", process.details != nullptr);
    if (process.details != nullptr)
      AddDetails(json, *process.details);
  });
  json.Key("notes");
  json.BeginArray();
  for (const std::string& note : model.notes)
    json.String(note);
  json.EndArray();
  json.EndObject();
  json.Finish();
  return text;
}

}  // namespace vramscope::cli
