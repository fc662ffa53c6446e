// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// A block of PyTorch's allocator that was recorded.
struct RecordedBlock {
  int64_t alloc_ns = 0;
  int64_t free_ns = INT64_MAX;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t requested_bytes = 0;  // as far as it is known, otherwise `bytes`
  tables::SegmentId segment;
  tables::SiteId site;
};

struct RecordedSegment {
  uint64_t address = 0;
  uint64_t bytes = 0;  // of its address range
  bool expandable = false;
};

// What the allocator of a process did on a GPU, by time.
struct RecordedStep {
  enum class Kind : uint8_t {
    kAllocate,
    kFree,
    kReserved,  // the driver's memory changed: `reserved_bytes` from now on
    kEmpty,     // segments were given back
  };
  int64_t time_ns = 0;
  Kind kind = Kind::kAllocate;
  uint32_t block = 0;
  uint64_t reserved_bytes = 0;
};

struct RecordedRequests {
  tables::AccountId account;
  std::vector<RecordedBlock> blocks;
  std::vector<RecordedStep> steps;
  std::vector<RecordedSegment> segments;  // by SegmentId
  uint64_t reserved_peak_bytes = 0;
  // Most of the account's other memory: contexts, libraries.
  uint64_t other_bytes = 0;
};

// Of each process on each GPU that used PyTorch's allocator.
util::Result<std::vector<RecordedRequests>> ReadRequests(const tables::Recording& recording);

}  // namespace vramscope::query
