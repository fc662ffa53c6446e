// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/replay/state.h"

namespace vramscope::engine {

// A device's history by leaf groups, in the order in which a stack of bands reads best: what is
// always there at the bottom, caches and slack on top.
struct Bands {
  std::vector<GroupKey> groups;
  std::vector<int64_t> time_ns;
  std::vector<std::vector<uint64_t>> bytes;  // [group][bucket]
  std::vector<std::pair<int64_t, uint64_t>> nvml;
};
Bands MakeBands(const DeviceState& device, size_t buckets);

}  // namespace vramscope::engine
