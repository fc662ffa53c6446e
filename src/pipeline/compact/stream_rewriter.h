// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "pipeline/compact/compaction.h"

namespace vramscope::compact {

using LossSums = std::map<uint64_t, LossSum>;  // by loss

// Writes what is kept of the first chunks of the plan's stream `number` behind a past file's bytes,
// with the definitions that this and later chunks refer to. What the stream lost is added to
// `lost`. `trace` may be null: see MakePastFile().
void RewriteStream(const trace::LiveFile& file,
                   const trace::TickClock& clock,
                   const trace::LiveTrace* trace,
                   const CompactionPlan& plan,
                   size_t number,
                   std::vector<uint8_t>* out,
                   LossSums* lost);

}  // namespace vramscope::compact
