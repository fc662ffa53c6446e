// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "query/report.h"
#include "util/status.h"

namespace vramscope::output {

// Writes the report as one HTML page that needs no network to `path`.
util::Status WriteHtml(const tables::Recording& recording, const std::string& path);

}  // namespace vramscope::output
