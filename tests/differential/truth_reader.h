// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "differential/truth_log.h"

namespace differential {

struct DeviceLine {
  int device = 0;
  uint64_t used = 0;
  int64_t process_bytes = 0, device_bytes = 0;
  uint64_t linear_asked = 0, linear_charged = 0, linear_count = 0;
  uint64_t array_charged = 0, array_count = 0;
  uint64_t physical_bytes = 0, physical_count = 0;
  uint64_t imported_count = 0;
  uint64_t pool_reserved = 0;
  uint64_t graph_reserved = 0, graph_used = 0;
  uint64_t driver_bytes = 0, contexts = 0, uvm = 0;
  uint64_t block_bytes = 0, unbacked_bytes = 0;
};

struct PoolLine {
  int device = 0;
  uint64_t handle = 0, reserved = 0, used = 0, allocations = 0;
};

struct HostLine {
  uint64_t pinned_bytes = 0, pinned_count = 0;
  uint64_t registered_bytes = 0, registered_count = 0;
  uint64_t managed_bytes = 0, managed_count = 0;
  uint64_t capturing = 0;  // streams
};

struct Instant {
  uint64_t number = 0;
  int64_t time_ns = 0;
  std::string call;
  int result = 0;
  uint64_t operation = 0;
  std::string operation_name;
  std::vector<DeviceLine> devices;
  std::vector<PoolLine> pools;
  HostLine host;
};

struct TruthLog {
  std::vector<Instant> instants;  // numbered from 1
  bool has_threads = false;       // some of its calls were made beside others
};

// False where the file is not there, or is not such a log. A last instant that was cut off is left
// away.
bool ReadTruth(const char* path, TruthLog* log);

}  // namespace differential
