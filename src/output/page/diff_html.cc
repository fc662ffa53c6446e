// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "output/devices.h"
#include "output/diff.h"
#include "output/page/html.h"
#include "output/page/page_columns.h"
#include "output/page/viewer_assets.h"
#include "output/results/json_parts.h"
#include "util/json_writer.h"

namespace vramscope::output {
namespace {

using util::JsonWriter;

// The GPUs' where there are some: what the diff is of.
std::vector<const query::Timeline*> Compared(const DiffHistory& side) {
  const auto is_of = [&](const query::Timeline& timeline, tables::DeviceKind kind) {
    return side.recording.tables().devices[timeline.device.value].kind == kind;
  };
  std::vector<const query::Timeline*> found;
  for (const tables::DeviceKind kind : {tables::DeviceKind::kGpu, tables::DeviceKind::kCpu}) {
    for (const query::Timeline& timeline : side.timelines) {
      if (is_of(timeline, kind))
        found.push_back(&timeline);
    }
    if (!found.empty())
      break;
  }
  return found;
}

// Of the first process that has any.
std::vector<const tables::IterationRow*> IterationsOf(const tables::Tables& tables) {
  std::vector<const tables::IterationRow*> found;
  for (const tables::IterationRow& row : tables.iterations) {
    if (row.process == tables.iterations.front().process)
      found.push_back(&row);
  }
  return found;
}

void WriteHistory(const DiffHistory& side, const query::Timeline& timeline, JsonWriter& json) {
  const tables::Tables& tables = side.recording.tables();
  const int64_t begin_ns = tables.session.begin_ns;
  json.Field("name", DeviceMark(side.recording, timeline.device));
  const int64_t last_ns = timeline.time_ns.empty() ? begin_ns : timeline.time_ns.back();
  json.Field("duration_ns", std::max(tables.session.end_ns, last_ns) - begin_ns);
  TextList(json, "groups", timeline.groups);
  WriteColumn(json, "time_ns", timeline.time_ns,
              [&](int64_t time_ns) { return time_ns - begin_ns; });
  NumberLists(json, "bytes", timeline.peak);
  json.Key("iterations");
  json.BeginArray();
  for (const tables::IterationRow* iteration : IterationsOf(tables))
    WriteTuple(json, iteration->begin_ns - begin_ns, iteration->end_ns - begin_ns);
  json.EndArray();
}

void WriteHistories(const char* key, const DiffHistory& side, JsonWriter& json) {
  WriteList(json, key, Compared(side), [&](const query::Timeline* timeline, JsonWriter& out) {
    WriteHistory(side, *timeline, out);
  });
}

std::string StemOf(const query::DiffSource& source) {
  return std::filesystem::path(source.file).stem().string();
}

}  // namespace

util::Status WriteDiffHtml(const query::Diff& diff,
                           const DiffHistory& a,
                           const DiffHistory& b,
                           const std::string& path) {
  const auto write = [&](JsonWriter& json) {
    json.BeginObject();
    json.Key("diff");
    WriteDiffJson(diff, json);
    json.Key("histories");
    json.BeginObject();
    WriteHistories("a", a, json);
    WriteHistories("b", b, json);
    json.EndObject();
    json.Field("version", b.recording.tables().session.version);
    json.EndObject();
    json.Finish();
    return util::Status();
  };
  return WriteHtmlPage({StemOf(diff.a) + " and " + StemOf(diff.b),
                        {ViewerStyle(), DiffStyle()},
                        DiffScript(),
                        write},
                       path);
}

}  // namespace vramscope::output
