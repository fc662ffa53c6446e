// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tables/recording.h"

// What whoever asks a recording relies on, and a file may not keep.
namespace vramscope::tables {

// The name of a table with a row that names a row that does not exist, or of `stacks` where they
// are no trees of a sensible depth; nullptr: there is none.
const char* FindBadReference(const Tables& tables);

// The columns `wanted` of a frame: the ids exist, the times are those of its zone, and nothing ends
// before it begins.
bool FrameMakesSense(const AllocationFrame& frame,
                     uint32_t wanted,
                     const FrameZone& zone,
                     const Tables& tables);

}  // namespace vramscope::tables
