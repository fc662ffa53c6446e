// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/analysis/leaves.h"
#include "engine/model/frames.h"

namespace vramscope::engine {

// What one stack or one line holds, or gave out over the whole recording.
struct Holder {
  trace::DeviceId device;
  trace::StackId stack;  // for lines: the stack with the largest share
  trace::FrameId frame;  // the innermost user frame
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// The largest stacks and the largest lines of the live set at `moment`, of all devices.
struct TopHolders {
  std::vector<Holder> stacks;
  std::vector<Holder> lines;
};
TopHolders FindTopHolders(const Ledger& ledger, Moment moment, UserFrames& frames, size_t limit);

// The lines that allocated most over the whole recording, whether it was freed or not.
std::vector<Holder> FindTopChurn(const Ledger& ledger, UserFrames& frames, size_t limit);

}  // namespace vramscope::engine
