// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "output/terminal.h"
#include "tables/recording.h"

namespace vramscope::cli {

// Saves why requests for memory were refused for good beside the recording NAME.vram at `path`: the
// first ones and the last, as NAME.oom-1 and so on, in place of what an older run left there. Says
// in lines why the last was, and where the files are; no lines where none was refused.
std::vector<std::string> SaveOutOfMemoryReports(const tables::Recording& recording,
                                                const std::string& path,
                                                const output::Style& style);

}  // namespace vramscope::cli
