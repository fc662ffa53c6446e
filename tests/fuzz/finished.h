// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tables/testing/random_tables.h"
#include "trace/trace.h"

namespace vramscope::fuzz {

// Writes a live recording as a finished one, peaks and all, to an empty file. False where it cannot
// be resolved. What is written can be read: otherwise the process ends.
bool Finish(trace::Trace& trace, const tables::testing::MemoryFile& file);

}  // namespace vramscope::fuzz
