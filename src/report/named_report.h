// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/query/report.h"

namespace vramscope::report {

struct NamedReport {
  std::string file;
  engine::Report report;
};

}  // namespace vramscope::report
