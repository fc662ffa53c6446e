// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "query/oom/refusals.h"
#include "query/oom/xla_pool.h"
#include "tables/recording.h"
#include "util/status.h"

// Why a request for device memory was refused: who held the device then, and what would help.
namespace vramscope::query {

// There in any program: no cause, unless it is most of the device.
inline constexpr char kHeldByDriver[] = "context, code and other memory of the driver";

// Some of the device's bytes, in the words of the cause that they would be.
struct MemoryHolder {
  std::string name;  // "activation", "other processes", "kept from earlier iterations", ...
  uint64_t bytes = 0;
  uint64_t count = 0;
  // Its largest part: "train.py:42 in step", and the layer, parameter or tag. Empty: not known.
  std::string place, layer;
  uint64_t largest_bytes = 0;
};

// A segment that is mostly free and cannot be given back, and its largest block.
struct PinnedSegment {
  uint64_t size_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t blocks = 0;
  uint64_t block_bytes = 0;
  std::string place, layer;
};

struct Advice {
  std::string text;
  uint64_t saves_bytes = 0;
  std::string how;  // it was computed
};

struct NamedBytes {
  std::string name;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

struct OutOfMemory {
  Refusal refusal;
  tables::DeviceId device;
  tables::ProcessId process;
  std::string place, layer;  // of the request
  uint64_t total_bytes = 0;  // of the device; 0: not known
  uint64_t used_bytes = 0;   // the ledger then
  // Total - used, so at most: firmware keeps some; or what the allocator reported.
  std::optional<uint64_t> free_bytes;
  // Of free_bytes: NVML had so many in use shortly before.
  uint64_t unexplained_bytes = 0;
  // The process's own segments, what is free inside of them, and the largest piece at one place.
  uint64_t in_segments_bytes = 0;
  uint64_t free_in_segments_bytes = 0;
  uint64_t largest_free_range_bytes = 0;
  std::string cause;                                  // a sentence with its bytes
  std::vector<MemoryHolder> holders;                  // all of used_bytes, largest first
  std::vector<NamedBytes> categories, layers, lines;  // largest first
  std::vector<PinnedSegment> pins;                    // by free bytes
  XlaPool xla_pool;                                   // where that refused
  std::vector<Advice> advice;                         // by what it saves
};

util::Result<OutOfMemory> ExplainRefusal(const tables::Recording& recording,
                                         const Refusal& refusal);

}  // namespace vramscope::query
