// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"

namespace vramscope::output {

// "94.94 % by the calls' sizes, 5.06 % by difference of free memory": how the rows of a device's
// peak know their bytes. Against the latter NVML's figure proves little.
std::string KnownBy(const query::ResidualSummary& summary);
// "at most 0 B (0.00 %) in 598 readings, 16 within calls": the last words go into `*more` where
// they have no room behind `columns_before` columns.
std::string Unexplained(const query::ResidualSummary& summary,
                        const tables::Recording& recording,
                        size_t columns_before,
                        const Style& style,
                        std::string* more);

// A residual that the project promises: at most 0.1 % of NVML's figure or 4 MiB, whichever is
// larger.
bool IsWithinTarget(int64_t residual_bytes, uint64_t nvml_bytes);

// How far a report can be trusted: the residual over the whole run, what was lost, which invariants
// are broken. Broken invariants and losses are loud; where all is well it is one line.
std::vector<std::string> TrustLines(const query::Report& report,
                                    const tables::Recording& recording,
                                    const Style& style);

// Why a recording has no devices: what was recorded.
std::vector<std::string> AbsenceLines(const tables::Recording& recording);

// "pid 4711 was checkpointed from 2.1 s to 3.4 s": when processes had none of their memory on the
// device.
std::vector<std::string> CheckpointLines(const tables::Recording& recording);

// "Asleep: at most 316 MiB of gpu0 without device memory, at 2.1 s (`--at @4200508018261`)".
std::vector<std::string> AsleepLines(const query::Report& report,
                                     const tables::Recording& recording);

// "Trace: train.vram (5.90 MiB, 4.8 bytes an event)".
std::string TraceLine(const tables::Recording& recording,
                      const std::string& path,
                      const Style& style);

// Of a run with --overflow: what the peak would have been, what of it was in the host's memory and
// which card would hold it; or that nothing was, and why.
std::vector<std::string> OverflowLines(const query::Report& report,
                                       const tables::Recording& recording,
                                       const Style& style);

// Why overflow served less than it was asked for, "" where it did not.
std::string OverflowTrouble(const tables::Recording& recording);

}  // namespace vramscope::output
