// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "query/allocator/allocator_model.h"
#include "query/allocator/allocator_settings.h"
#include "query/allocator/recorded_requests.h"

namespace vramscope::query {

// What a replay of recorded requests came to.
struct AllocatorReplay {
  uint64_t peak_bytes = 0;  // reserved
  int64_t peak_ns = 0;
  uint64_t allocated_bytes = 0;  // of blocks, at that peak
  uint64_t driver_calls = 0;     // that made or freed segments or mapped memory
  // The first request that failed; the replay ends there.
  std::optional<uint32_t> failed_block;
};

// How far the model does what was recorded.
struct Reproduction {
  std::vector<uint64_t> streams;  // of each segment, by SegmentId, as inferred
  uint64_t stream_count = 0;
  uint64_t events = 0;  // segments made or freed, after which the bytes were compared
  uint64_t different_events = 0;
  uint64_t largest_difference_bytes = 0;
  int64_t first_different_ns = 0;
  uint64_t moved_blocks = 0;   // at another address than recorded
  uint64_t hidden_blocks = 0;  // whose request may have been smaller
  AllocatorReplay replay;
};

inline constexpr size_t kMostTries = 200;

// Replays what was recorded under the settings of the recording. Streams and private pools are not
// recorded: segments that cannot be one stream's get different numbers, which takes some tries.
Reproduction Reproduce(const RecordedRequests& requests,
                       const AllocatorRules& rules,
                       const AllocatorSettings& settings,
                       uint64_t device_bytes,
                       size_t most_tries = kMostTries);

// The same settings without what changes no replay of these requests. A replay has no limit, so it
// collects no garbage. `max_split_bytes` above all segments has no effect. Which segments there can
// be is known where all else is as recorded.
AllocatorSettings EffectOf(const AllocatorSettings& settings,
                           const AllocatorSettings& recorded,
                           const RecordedRequests& requests);

// Under other settings, or on a device with fewer bytes.
AllocatorReplay ReplayWith(const RecordedRequests& requests,
                           const std::vector<uint64_t>& streams,
                           const AllocatorRules& rules,
                           const AllocatorSettings& settings,
                           uint64_t device_bytes,
                           uint64_t capacity_bytes);

}  // namespace vramscope::query
