// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tables/recording.h"

namespace vramscope::query {

// Memory of a device that came, or went, and nobody knows why.
struct Unexplained {
  tables::DeviceId device;
  int64_t bytes = 0;     // less than nothing: the rows have so much more than NVML
  int64_t since_ns = 0;  // CLOCK_MONOTONIC
  std::string near;      // the calls of that time: "at cuLaunchKernel in cm.py:8"; may be empty
};

// Of the whole recording, in order of time.
std::vector<Unexplained> FindUnexplained(const tables::Recording& recording);

// "+256.0 MiB since 5.20 s, at cuLaunchKernel in cm.py:8: no known cause"
std::string UnexplainedText(const tables::Recording& recording, const Unexplained& unexplained);

}  // namespace vramscope::query
