// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tables/recording.h"
#include "trace/trace.h"

namespace vramscope::fuzz {

// What a recording says, and what it says that is missing from it.
struct Facts {
  uint64_t hash = 0;    // of everything in it, names resolved: numbers of table rows do not count
  uint64_t events = 0;  // of a finished one: allocations
  std::string losses;
};

Facts FactsOf(trace::Trace& trace);
Facts FactsOf(const tables::Recording& recording);

}  // namespace vramscope::fuzz
