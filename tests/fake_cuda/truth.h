// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "books.h"

// The fake driver's own figures of a process's memory, by kind. The differential test compares the
// ledger with them. They are found by dlsym("fakeTakeTruth") in the fake driver, without the probe.
namespace fake {

struct PoolTruth {
  uint64_t handle;
  int32_t device;
  uint64_t reserved;
  uint64_t used;
  uint64_t allocations;
};

struct DeviceTruth {
  uint64_t used;  // of all processes: what NVML says
  int64_t process_bytes;
  int64_t device_bytes;
  uint64_t linear_asked;    // cuMemAlloc, and cuMemAllocPitch with its pitch
  uint64_t linear_charged;  // what they take, slabs whole
  uint64_t linear_count;
  uint64_t array_charged;
  uint64_t array_count;
  uint64_t physical_bytes;  // cuMemCreate
  uint64_t physical_count;
  uint64_t imported_count;
  uint64_t pool_reserved;
  uint64_t graph_reserved;
  uint64_t graph_used;
  uint64_t driver_bytes;  // cuInit, contexts, code, local memory, limits, streams
  uint64_t contexts;
  uint64_t uvm;  // of the UVM driver, managed memory included
};

constexpr size_t kMaxTruthPools = 256;

struct Truth {
  uint32_t device_count;
  uint32_t pool_count;
  DeviceTruth devices[FAKE_MAX_DEVICES];
  PoolTruth pools[kMaxTruthPools];  // by handle
  uint64_t pinned_bytes;
  uint64_t pinned_count;
  uint64_t registered_bytes;
  uint64_t registered_count;
  uint64_t managed_bytes;
  uint64_t managed_count;
  uint64_t capturing;  // streams: while there are any, no figure can be asked for
};

using TakeTruthFunction = void(Truth*);

// The calls that count from now on: the one after `calls_before_it` fails with out of memory, 0 for
// the next. `late`: it fails after it did its work, which it undoes. Counted over all threads.
using FailNextFunction = void(uint64_t calls_before_it, bool late);
inline constexpr uint64_t kFailNone = UINT64_MAX;

}  // namespace fake
