// SPDX-License-Identifier: Apache-2.0
#include "output/page/html.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "output/page/page_data.h"
#include "output/page/page_script_data.h"
#include "output/page/viewer_assets.h"
#include "util/json_writer.h"
#include "util/owned_file.h"

namespace vramscope::output {
namespace {

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

}  // namespace

util::Status WriteHtmlPage(const HtmlPage& page, const std::string& path) {
  VRAMSCOPE_ASSIGN_OR_RETURN(auto created, util::AtomicFile::Create(path));
  PageFile file(std::move(created));
  std::string_view text = ViewerPage();
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
      util::JsonWriter json([&](std::string_view piece) { data.Write(piece); });
      VRAMSCOPE_RETURN_IF_ERROR(page.write_data(json));
      data.Finish();
    }
  }
  file.Write(text);
  return file.Commit();
}

util::Status WriteHtml(const tables::Recording& recording, const std::string& path) {
  return WriteHtmlPage(
      {recording.tables().session.name,
       {ViewerStyle()},
       ViewerScript(),
       [&](util::JsonWriter& json) { return WritePageData(recording, PageLimits{}, json); }},
      path);
}

}  // namespace vramscope::output
