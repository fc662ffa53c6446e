// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trace/trace.h"
#include "util/status.h"

// What a process holds that the driver cannot move to host memory and back, with the rest of its
// device memory: it fails in the middle then, and the process does not survive it.
namespace vramscope::resolve {

enum class ImmovableKind : uint8_t {
  kManaged,    // cuMemAllocManaged, pools of managed memory
  kOpened,     // another process's: cuIpcOpenMemHandle, imported handles and pools
  kExported,   // this process's, and another may have it open
  kExternal,   // of Vulkan and its kin
  kMulticast,  // NCCL's NVLS
  kOverflow,   // the host's, mapped in place of the device's by `run --overflow`
};

struct Immovable {
  ImmovableKind kind = ImmovableKind::kManaged;
  uint64_t count = 0;
  uint64_t bytes = 0;  // 0: not known
};

struct Movability {
  std::vector<Immovable> immovable;
  // Why the recording cannot tell everything; empty: it can.
  std::vector<std::string> gaps;
};

// Of the process at the end of the recording, which may be under way. An error where it is not in
// the recording.
util::Result<Movability> FindImmovable(trace::Trace& trace,
                                       uint32_t pid,
                                       const std::function<void(double)>& progress = {});

}  // namespace vramscope::resolve
