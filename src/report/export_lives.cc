// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/csv.h"
#include "report/devices.h"
#include "report/export.h"
#include "report/export_pieces.h"
#include "report/places.h"
#include "util/json_writer.h"

namespace vramscope::report {
namespace {

constexpr int64_t kNeverFreed = std::numeric_limits<int64_t>::max();

std::string DeviceText(const trace::Trace& trace, trace::DeviceId id) {
  const auto index = static_cast<size_t>(id.value);
  if (id.value < 0 || index >= trace.devices().size())
    return {};
  return DeviceMark(trace.devices()[index].kind, trace.devices()[index].index);
}

// A text made once for each value that occurs: millions of allocations come from thousands of
// stacks.
template <class Key>
class Texts {
 public:
  explicit Texts(std::function<std::string(Key)> make) : make_(std::move(make)) {}

  const std::string& Of(Key key) {
    const auto [found, added] = texts_.try_emplace(key);
    if (added)
      found->second = make_(key);
    return found->second;
  }

 private:
  std::function<std::string(Key)> make_;
  std::unordered_map<Key, std::string> texts_;
};

std::vector<std::string> FramesOutermostFirst(const trace::Trace& trace, trace::StackId stack) {
  const std::vector<trace::FrameId> ids = StackFrames(trace, stack);
  std::vector<std::string> frames;
  frames.reserve(ids.size());
  for (size_t i = ids.size(); i-- > 0;)
    frames.push_back(engine::FormatFrame(trace, ids[i]));
  return frames;
}

std::string JsonArray(const std::vector<std::string>& items) {
  std::string text;
  util::JsonWriter json(&text);
  json.BeginArray();
  for (const std::string& item : items)
    json.String(item);
  json.EndArray();
  return text;
}

std::string Joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty())
      text += separator;
    text += item;
  }
  return text;
}

}  // namespace

util::Status ExportLivesCsv(engine::Analysis& analysis, const ExportSink& sink) {
  const trace::Trace& trace = analysis.trace();
  Texts<trace::StackId> stacks([&](trace::StackId stack) {
    return CsvField(Joined(FramesOutermostFirst(trace, stack), ";"));
  });
  Texts<uint32_t> paths(
      [&](uint32_t path) { return CsvField(Joined(analysis.LifePath(path), " / ")); });
  ExportPieces pieces(sink);
  pieces.text() += "device,pid,address,bytes,alloc_ns,free_ns,api,path,stack\r\n";
  const util::Status status = analysis.ForEachLife([&](const engine::Life& life) {
    const auto out = std::back_inserter(pieces.text());
    fmt::format_to(out, "{},", DeviceText(trace, life.device));
    if (life.process.value < trace.processes().size()) {
      fmt::format_to(out, "{}", trace.processes()[life.process.value].pid);
    }
    fmt::format_to(out, ",{:#x},{},{},", life.address, life.bytes, life.alloc_ns);
    if (life.free_ns != kNeverFreed)
      fmt::format_to(out, "{}", life.free_ns);
    fmt::format_to(out, ",{},{},{}\r\n", CsvField(trace.string(life.api)), paths.Of(life.path),
                   stacks.Of(life.stack));
    pieces.LineDone();
  });
  const util::Status written = pieces.Finish();
  return status.ok() ? written : status;
}

util::Status ExportLivesJson(engine::Analysis& analysis, const ExportSink& sink) {
  const trace::Trace& trace = analysis.trace();
  Texts<trace::StackId> stacks(
      [&](trace::StackId stack) { return JsonArray(FramesOutermostFirst(trace, stack)); });
  Texts<uint32_t> paths([&](uint32_t path) { return JsonArray(analysis.LifePath(path)); });
  ExportPieces pieces(sink);
  const util::Status status = analysis.ForEachLife([&](const engine::Life& life) {
    util::JsonWriter json(&pieces.text());
    json.BeginObject();
    json.Field("device", DeviceText(trace, life.device));
    json.Key("pid");
    if (life.process.value < trace.processes().size()) {
      json.Uint(trace.processes()[life.process.value].pid);
    } else {
      json.Null();
    }
    // As text: JavaScript's numbers end at 2^53.
    json.Field("address", fmt::format("{:#x}", life.address));
    json.Field("bytes", life.bytes);
    json.Field("alloc_ns", life.alloc_ns);
    json.Key("free_ns");
    life.free_ns == kNeverFreed ? json.Null() : json.Int(life.free_ns);
    json.Field("api", trace.string(life.api));
    json.Key("path");
    json.Raw(paths.Of(life.path));
    json.Key("stack");
    json.Raw(stacks.Of(life.stack));
    json.EndObject();
    pieces.text() += '\n';
    pieces.LineDone();
  });
  const util::Status written = pieces.Finish();
  return status.ok() ? written : status;
}

}  // namespace vramscope::report
