// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "output/answers.h"
#include "output/names.h"
#include "output/page/page_data.h"
#include "output/results/json_parts.h"
#include "util/json.h"
#include "util/owned_file.h"

// Defined in viewer_assets.S.
extern "C" {
extern const char vramscope_viewer_page[];
extern const char vramscope_viewer_page_end[];
extern const char vramscope_viewer_style[];
extern const char vramscope_viewer_style_end[];
extern const char vramscope_viewer_script[];
extern const char vramscope_viewer_script_end[];
extern const char vramscope_viewer_diff_style[];
extern const char vramscope_viewer_diff_style_end[];
extern const char vramscope_viewer_diff_script[];
extern const char vramscope_viewer_diff_script_end[];
extern const char vramscope_viewer_ranks_script[];
extern const char vramscope_viewer_ranks_script_end[];
}

namespace vramscope::output {
namespace {

using util::JsonWriter;

std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

// For the pages of a diff and of ranks, after the style sheet of the report's page.
std::string_view DiffStyle() {
  return Between(vramscope_viewer_diff_style, vramscope_viewer_diff_style_end);
}

// A page: its text around the data.
struct HtmlPage {
  std::string title;
  std::vector<std::string_view> styles;
  std::string_view script;
  std::function<util::Status(JsonWriter& json)> write_data;
};

// `text` for the place between two tags.
std::string HtmlText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Keeps the first error, so that a writer without a way to fail can be drained to its end.
class PageFile {
 public:
  explicit PageFile(util::AtomicFile file) : file_(std::move(file)) {}

  void Write(std::string_view text) {
    if (status_.ok())
      status_ = file_.Write(text);
  }
  util::Status Commit() {
    if (!status_.ok())
      return status_;
    return file_.Commit();
  }

 private:
  util::AtomicFile file_;
  util::Status status_;
};

// Writes it to `path`, as one file that needs no network.
util::Status WriteHtmlPage(const HtmlPage& page, const std::string& path) {
  VRAMSCOPE_ASSIGN_OR_RETURN(auto created, util::AtomicFile::Create(path));
  PageFile file(std::move(created));
  std::string_view text = Between(vramscope_viewer_page, vramscope_viewer_page_end);
  // The template has "{{NAME}}" where something is put in, and no other "{{".
  for (size_t open = text.find("{{"); open != std::string_view::npos; open = text.find("{{")) {
    file.Write(text.substr(0, open));
    const size_t close = std::min(text.find("}}", open), text.size() - 2);
    const std::string_view name = text.substr(open + 2, close - open - 2);
    text.remove_prefix(close + 2);
    if (name == "TITLE") {
      file.Write(HtmlText(page.title));
      file.Write(" · vramscope");
    } else if (name == "CSS") {
      for (const std::string_view style : page.styles)
        file.Write(style);
    } else if (name == "JS") {
      file.Write(page.script);
    } else {
      PageScriptData data([&](std::string_view piece) { file.Write(piece); });
      JsonWriter json([&](std::string_view piece) { data.Write(piece); });
      VRAMSCOPE_RETURN_IF_ERROR(page.write_data(json));
      data.Finish();
    }
  }
  file.Write(text);
  return file.Commit();
}

}  // namespace

std::string_view ViewerStyle() {
  return Between(vramscope_viewer_style, vramscope_viewer_style_end);
}

std::string_view ViewerScript() {
  return Between(vramscope_viewer_script, vramscope_viewer_script_end);
}

util::Status WriteHtml(const tables::Recording& recording, const std::string& path) {
  return WriteHtmlPage(
      {recording.tables().session.name,
       {ViewerStyle()},
       ViewerScript(),
       [&](JsonWriter& json) { return WritePageData(recording, PageLimits{}, json); }},
      path);
}

namespace {

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
                        Between(vramscope_viewer_diff_script, vramscope_viewer_diff_script_end),
                        write},
                       path);
}

util::Status WriteRanksHtml(const query::RankReport& report, const std::string& path) {
  const auto write = [&](JsonWriter& json) {
    json.BeginObject();
    json.Key("report");
    WriteRanksJson(report, json);
    json.Field("imbalance", report.ranks.empty() ? "" : ImbalanceText(report));
    json.Field("missing", NumberRanges(report.missing));
    WriteList(json, "histories", report.ranks, [&](const query::RankMemory& rank, JsonWriter& out) {
      out.Field("end", rank.end_wall_ns - report.first_wall_ns);
      WriteColumn(out, "t", rank.history, [&](const auto& stretch) {
        return stretch.begin_wall_ns - report.first_wall_ns;
      });
      WriteColumn(out, "bytes", rank.history, [](const auto& stretch) { return stretch.bytes; });
    });
    json.EndObject();
    json.Finish();
    return util::Status();
  };
  return WriteHtmlPage({fmt::format("{} ranks", report.ranks.size()),
                        {ViewerStyle(), DiffStyle()},
                        Between(vramscope_viewer_ranks_script, vramscope_viewer_ranks_script_end),
                        write},
                       path);
}

}  // namespace vramscope::output
