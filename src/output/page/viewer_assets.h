// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// The HTML page's parts, which the build puts into the program (viewer_bundle.cmake).
namespace vramscope::output {

std::string_view ViewerPage();    // viewer/src/page.html
std::string_view ViewerStyle();   // the bundled style sheet
std::string_view ViewerScript();  // the bundled script

// What the page of a diff has beside the style sheet above, and its script.
std::string_view DiffStyle();
std::string_view DiffScript();

// The script of the page of ranks, which has the diff's style.
std::string_view RanksScript();

}  // namespace vramscope::output
