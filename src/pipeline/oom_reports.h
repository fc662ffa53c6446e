// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "output/terminal.h"
#include "tables/recording.h"

namespace vramscope::cli {

struct OutOfMemoryReports {
  size_t refusals = 0;             // for good
  std::vector<std::string> lines;  // why the last was, and where the files are
};

// Saves why requests for memory were refused for good beside the recording NAME.vram at `path`: the
// first ones and the last, as NAME.oom-1 and so on, in place of what an older run left there. No
// lines, and nothing is saved, where there are no more of them than `told`.
OutOfMemoryReports SaveOutOfMemoryReports(const tables::Recording& recording,
                                          const std::string& path,
                                          const output::Style& style,
                                          size_t told = 0);

}  // namespace vramscope::cli
