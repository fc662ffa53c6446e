// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/owners.h"
#include "engine/replay/state.h"

namespace vramscope::engine {

// A device's history by category, in their order, bottom first; what has none by owner and part;
// above them the driver's own parts, and what belongs to none of the recorded processes.
struct Bands {
  std::vector<std::string> names;
  std::vector<int64_t> time_ns;
  std::vector<std::vector<uint64_t>> bytes;  // [group][bucket]
  std::vector<std::pair<int64_t, uint64_t>> nvml;
};
// Of a ledger that was replayed with categories known.
Bands MakeBands(const DeviceState& device, const Owners& owners, size_t buckets);

}  // namespace vramscope::engine
