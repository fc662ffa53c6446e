// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "util/status.h"

namespace vramscope::compact {

// The error where space could not be given back.
inline constexpr char kHeldByReader[] = "somebody reads the recording, and has not ended";

struct CompactOptions {
  std::string directory;
  uint64_t to_bytes = 0;              // of the live files
  bool drop = false;                  // quickly, without a look for peaks
  std::vector<std::string> instants;  // kept by the compaction before: FILE:DEVICE:NS
};

// Run by `vramscope run --ring` from time to time, in another process (docs/RING.md): old chunks of
// the live files become past files, and their space is given back. Prints the instants that are
// kept, for the launcher to hand to a drop.
util::Status Compact(CompactOptions options);

}  // namespace vramscope::compact
