// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tables/recording.h"

// Properties that questions rely on, and that a damaged file may lack.
namespace vramscope::tables {

// No clock shows more, by a factor that leaves room for what is computed with them: the difference
// of two such times is a number too.
inline constexpr int64_t kMaxTimeNs = (int64_t{1} << 62) - 1;

// Times beyond that become that; an end that is kNever stays.
void BoundTimes(Tables* tables);
void BoundTimes(FrameZone* zone);
// The frame's zone is bounded.
void BoundTimes(const FrameZone& zone, AllocationFrame* frame);

// Words that this version does not know become those that say least.
void BoundWords(Tables* tables);

// The name of a table with a row that names a missing row, or of `stacks` if they are not trees of
// a sensible depth; nullptr if all tables are sound.
const char* FindBadReference(const Tables& tables);

// Bytes of text, each counted as often as a row of the tables names it: a listing repeats it as
// often, so one long text that a million rows name is a large claim too. In real recordings a
// row's texts are some 200 bytes where the row takes 6 or more of the file.
uint64_t NamedTextBytes(const Tables& tables);

// The columns `wanted` of a frame: the ids exist, the times are those of its zone, and nothing ends
// before it begins.
bool FrameMakesSense(const AllocationFrame& frame,
                     uint32_t wanted,
                     const FrameZone& zone,
                     const Tables& tables);

}  // namespace vramscope::tables
