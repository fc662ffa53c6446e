// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "resolve/flat_map.h"
#include "resolve/page_index.h"
#include "resolve/records.h"
#include "resolve/slab.h"
#include "tables/ids.h"
#include "trace/trace.h"

// The ledger's state, by process, and by pairs of process and device ("spaces").
namespace vramscope::resolve {

// A process on a device.
struct Space {
  trace::ProcessId process;
  trace::DeviceId device;
  trace::DeviceKind kind = trace::DeviceKind::kGpu;
  int64_t first_ns = 0;
  int64_t end_ns = INT64_MAX;
  FlatMap block_index;
  Slab<Block> blocks;
  uint64_t block_bytes = 0;
  uint32_t default_segment = kNoIndex;
  uint32_t program_segment = kNoIndex;  // the same for blocks of the program's own pools
  uint32_t before_counter = kNoIndex;
  int64_t before_offset = 0;  // what it must have been at the start for that not to be negative
  bool totals_seen = false;
  bool driver_events = false;
  bool blocks_seen = false;
  // Slabs of small driver allocations: live ones by 2 MiB page; the segment that they make, and the
  // counter that says what it holds.
  FlatMap slab_pages;
  uint64_t small_bytes = 0;
  int64_t slab_slack = 0;
  tables::SegmentId slab_segment;
  uint32_t slab_counter = kNoIndex;
  uint32_t graph_used_counter = kNoIndex;
  uint32_t graph_cached_counter = kNoIndex;
};

struct Reservation {
  uint64_t size = 0;
  std::vector<uint32_t> segments;  // one for each device whose memory was mapped into it
  bool implicit = false;           // made of mappings whose reservation was not seen
};

struct ProcessState {
  Slab<Holding> holdings;
  // Addresses, arrays, handles and registered memory come from different number spaces.
  std::array<FlatMap, 4> holding_index;
  FlatMap mapping_index;
  FlatMap pools;                            // pool handle -> segment
  std::map<uint64_t, uint32_t> pool_names;  // by handle, of pools that were not seen yet
  PageIndex pages;
  std::map<uint64_t, Reservation> reservations;
  bool began_late = false;  // it was under way when its recording began
  bool seen = false;
  bool torn_down = false;
  bool ended = false;
  uint32_t modules_gone = 0;
  int64_t teardown_ns = 0;
  int64_t exit_ns = 0;  // the last instant before its teardown or its end; 0: not seen yet
  int64_t last_ns = 0;
};

}  // namespace vramscope::resolve
