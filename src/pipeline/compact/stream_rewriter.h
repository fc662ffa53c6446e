// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "pipeline/compact/compaction.h"

namespace vramscope::compact {

// Counts and bytes by loss.
using LossSums = std::map<uint64_t, std::pair<uint64_t, uint64_t>>;

// What a stream is rewritten from.
struct PastSource {
  const trace::LiveFile& file;
  const trace::TickClock& clock;
  const trace::LiveTrace* trace;  // for the plan's origins; null where there are none
  bool carries_origins;           // PastOrigin records of an earlier past stay
};

// Writes what is kept of a stream's first chunks behind a past file's bytes, with the definitions
// that this and later chunks refer to. What the stream lost is added to `lost`.
void RewriteStream(const PastSource& source,
                   const std::vector<trace::ChunkRef>& chunks,
                   const StreamPlan& plan,
                   std::vector<uint8_t>* out,
                   LossSums* lost);

}  // namespace vramscope::compact
