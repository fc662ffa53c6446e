// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "query/dimensions/report.h"
#include "util/json_writer.h"
#include "util/status.h"

namespace vramscope::output {

// A page of ours: its text around the data.
struct HtmlPage {
  std::string title;
  std::vector<std::string_view> styles;
  std::string_view script;
  std::function<util::Status(util::JsonWriter& json)> write_data;
};

// Writes it to `path`, as one file that needs no network.
util::Status WriteHtmlPage(const HtmlPage& page, const std::string& path);

// Writes the report as one HTML page that needs no network to `path`.
util::Status WriteHtml(const tables::Recording& recording, const std::string& path);

}  // namespace vramscope::output
