// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/oom/out_of_memory.h"
#include "tables/recording.h"

namespace vramscope::output {

// How the text of each begins.
inline constexpr char kOutOfMemoryBegin[] = "Out of memory on ";
inline constexpr char kOutOfMemorySchema[] = "vramscope.oom/1";

// For people. The first three lines say what was asked, why it was refused and what else holds
// most.
std::string FormatOutOfMemory(const query::OutOfMemory& what,
                              const tables::Recording& recording,
                              const Style& style);

// Its first line: "Out of memory on gpu0: 4.00 GiB asked for at train.py:7, at most ... free".
std::string RefusalHead(const query::OutOfMemory& what, const tables::Recording& recording);

// A line for each refusal, with the number that `report --oom=N` takes.
std::string FormatRefusals(const std::vector<query::Refusal>& refusals,
                           const tables::Recording& recording,
                           const Style& style);

// One object of the schema vramscope.oom/1 (docs/OOM.md): all refusals, and those explained that
// were.
std::string OutOfMemoryJson(const query::Refusals& refusals, const tables::Recording& recording);

// "2 requests for memory were refused for good, the last of 4.00 GiB: `vramscope report F --oom`";
// "" where none was.
std::string RefusalsLine(const std::vector<query::Refusal>& refusals, const std::string& file);

}  // namespace vramscope::output
