// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "format/records.h"
#include "trace/file/live_file.h"
#include "trace/file/tick_clock.h"

// The part of the first pass that needs nothing of what stands before: nearly all chunks of a long
// recording define nothing, and are looked through side by side.
namespace vramscope::trace {

// What the first pass takes from a chunk without definitions.
struct ChunkSkim {
  struct Used {
    uint64_t id = 0;
    uint64_t count = 0;
  };
  bool is_told = false;  // else there is more to it: it is to be walked in its turn
  uint64_t event_count = 0;
  std::optional<uint64_t> last_ticks;  // of the latest event
  std::vector<TickClock::Anchor> anchors;
  std::vector<format::Bytes> texts;  // that events bring with them, in order
  std::vector<int64_t> devices;
  std::vector<Used> python_stacks, native_stacks;
};

// One for each of the chunks, by so many threads.
std::vector<ChunkSkim> SkimChunks(const LiveFile& file,
                                  std::span<const ChunkRef> chunks,
                                  size_t workers);

}  // namespace vramscope::trace
