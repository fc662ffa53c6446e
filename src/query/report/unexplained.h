// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "query/results.h"
#include "tables/recording.h"

namespace vramscope::query {

// Of the whole recording, in order of time.
std::vector<Unexplained> FindUnexplained(const tables::Recording& recording);

// "+256.0 MiB since 5.20 s, at cuLaunchKernel in cm.py:8: no known cause"
std::string UnexplainedText(const tables::Recording& recording, const Unexplained& unexplained);

}  // namespace vramscope::query
