// SPDX-License-Identifier: Apache-2.0
#include "output/page/viewer_assets.h"

#include <cstddef>

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

std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::string_view ViewerPage() {
  return Between(vramscope_viewer_page, vramscope_viewer_page_end);
}

std::string_view ViewerStyle() {
  return Between(vramscope_viewer_style, vramscope_viewer_style_end);
}

std::string_view ViewerScript() {
  return Between(vramscope_viewer_script, vramscope_viewer_script_end);
}

std::string_view DiffStyle() {
  return Between(vramscope_viewer_diff_style, vramscope_viewer_diff_style_end);
}

std::string_view DiffScript() {
  return Between(vramscope_viewer_diff_script, vramscope_viewer_diff_script_end);
}

std::string_view RanksScript() {
  return Between(vramscope_viewer_ranks_script, vramscope_viewer_ranks_script_end);
}

}  // namespace vramscope::output
