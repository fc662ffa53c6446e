// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/query/report.h"

namespace vramscope::report {

// "pid 4711 gave its device memory back from 12.1 s to 20.4 s", one line for each time.
std::vector<std::string> AwayLines(const engine::Analysis& analysis);

}  // namespace vramscope::report
