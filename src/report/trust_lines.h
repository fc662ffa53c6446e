// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/query/report.h"
#include "report/terminal.h"
#include "trace/trace.h"

namespace vramscope::report {

// A residual that the project promises: at most 0.1 % of NVML's figure or 4 MiB, whichever is
// larger.
bool IsWithinTarget(int64_t residual_bytes, uint64_t nvml_bytes);

// How far a report can be trusted: the residual over the whole run, what was lost, which invariants
// are broken. Broken invariants and losses are loud; where all is well it is one line.
std::vector<std::string> TrustLines(const engine::Report& report,
                                    const trace::Trace& trace,
                                    const Style& style);

// "Trace: train.vram (5.90 MiB, 4.8 bytes an event)".
std::string TraceLine(const trace::Trace& trace, const std::string& path, const Style& style);

}  // namespace vramscope::report
