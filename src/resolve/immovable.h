// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trace/trace.h"
#include "util/status.h"

// Finds memory that the driver cannot move to host memory and back. Checkpointing a process with
// such memory fails halfway, and the process does not survive.
namespace vramscope::resolve {

enum class ImmovableKind : uint8_t {
  kManaged,    // cuMemAllocManaged, pools of managed memory
  kOpened,     // of another process: cuIpcOpenMemHandle, imported handles and pools
  kExported,   // of this process; another may have it open
  kExternal,   // of Vulkan and similar APIs
  kMulticast,  // NCCL's NVLS
  kOverflow,   // host memory that replaces device memory (`run --overflow`)
};

struct Immovable {
  ImmovableKind kind = ImmovableKind::kManaged;
  uint64_t count = 0;
  uint64_t bytes = 0;  // 0: unknown
};

struct Movability {
  std::vector<Immovable> immovable;
  // Why the recording may be incomplete; empty: it is complete.
  std::vector<std::string> gaps;
};

// Examines the process at the end of the recording, which may be live. Fails if the recording does
// not have the process.
util::Result<Movability> FindImmovable(trace::Trace& trace,
                                       uint32_t pid,
                                       const std::function<void(double)>& progress = {});

}  // namespace vramscope::resolve
