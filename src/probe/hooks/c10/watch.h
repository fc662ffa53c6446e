// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/compiler.h"

// The blocks that PyTorch's allocators hold, for the line profiler, which compares two instants.
// Nothing is recorded while it is not watching. Figures are the process's: all threads.
namespace vramscope::probe {

inline constexpr int kWatchedGpus = 16;
inline constexpr int kWatchedCpu = kWatchedGpus;  // CPU tensors
inline constexpr int kWatchedDevices = kWatchedGpus + 1;
inline constexpr int64_t kNoPeak = std::numeric_limits<int64_t>::min();

// Bytes, as signed numbers: on the CPU they count from when the watch began, and what was allocated
// before can be freed.
struct alignas(64) WatchedDevice {
  std::atomic<int64_t> allocated{0}, reserved{0};
  // The most at an event since they were taken; kNoPeak where there was none.
  std::atomic<int64_t> peak_allocated{kNoPeak}, peak_reserved{kNoPeak};
  // All events since the process began.
  std::atomic<int64_t> bytes_given{0}, bytes_back{0}, blocks_given{0}, blocks_back{0};
};
extern constinit WatchedDevice g_watched[kWatchedDevices];
// A bit for each device that is watched.
extern constinit std::atomic<uint32_t> g_watch_mask;

VRAMSCOPE_ALWAYS_INLINE bool IsWatched(int device) {
  const uint32_t mask = g_watch_mask.load(std::memory_order_relaxed);
  return VRAMSCOPE_UNLIKELY(mask != 0) && (mask >> (static_cast<unsigned>(device) & 31) & 1) != 0;
}

// A block of a GPU was given out (size > 0) or came back (< 0); what the allocator then held.
// Called under that allocator's lock.
void WatchGpuBlock(int device,
                   const void* block,
                   int64_t size,
                   int64_t allocated,
                   int64_t reserved);
void WatchCpuAlloc(const void* block, int64_t size);
// Before it is freed.
void WatchCpuFree(void* block);

// The following by one thread at a time.

// Begins to watch it. `allocated`, `reserved`: what the device holds already, if known.
void WatchDevice(int device, int64_t allocated, int64_t reserved);
// In a child after fork: the holder of the list's lock is gone.
void WatchForked();
// Ends the watch of all devices and forgets the blocks.
void WatchNothing();

// Blocks that were given out since the watch began and are live have numbers, in the order in which
// they came.
uint64_t WatchedSerial();  // of the next block
// Calls `visit` with each of them from that number on; false if blocks are missing, because
// there were too many.
struct LiveBlock {
  uintptr_t address;
  int64_t size;  // 0: it came back
  uint64_t serial;
  int device;
};
bool VisitLiveBlocks(uint64_t first, void (*visit)(const LiveBlock& block, void* data), void* data);

}  // namespace vramscope::probe
