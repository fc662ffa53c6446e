// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/query/report.h"
#include "util/status.h"

namespace vramscope::report {

// Writes the report as one HTML page that needs no network to `path`.
util::Status WriteHtml(engine::Analysis& analysis, const std::string& path);

}  // namespace vramscope::report
