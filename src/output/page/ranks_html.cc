// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "output/page/html.h"
#include "output/page/page_columns.h"
#include "output/page/viewer_assets.h"
#include "output/ranks.h"
#include "output/results/json_parts.h"
#include "util/json_writer.h"

namespace vramscope::output {

using util::JsonWriter;

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
                        RanksScript(),
                        write},
                       path);
}

}  // namespace vramscope::output
