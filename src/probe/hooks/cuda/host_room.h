// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/memory_groups.h"

namespace vramscope::probe::cuda {

// Bytes of the machine's memory that may be taken for good without anybody's being killed for want
// of it: what is available to the machine and within the limits of the process's control groups,
// less a margin of each. Reads files of /proc and /sys, and nothing else; errno is the caller's to
// keep. `root` stands for "/" in tests.
uint64_t HostRoomBytes(const base::MemoryGroups& groups, const char* root = "");

}  // namespace vramscope::probe::cuda
