// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trace/trace.h"

namespace vramscope::fuzz {

// What a recording says, and what it says that is missing from it.
struct Facts {
  uint64_t hash = 0;  // of everything in it, names resolved: numbers of table rows do not count
  uint64_t events = 0;
  std::string losses;
};

Facts FactsOf(trace::Trace& trace);

}  // namespace vramscope::fuzz
