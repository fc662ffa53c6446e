// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

// Whether the driver gave memory between two instants, for those to whom only that matters.
namespace vramscope::probe {

inline constinit std::atomic<bool> g_counts_driver_memory{false};
inline constinit std::atomic<uint32_t> g_driver_memory_count{0};

// Nothing but a load where nobody asked.
inline void CountDriverMemory() {
  if (__builtin_expect(g_counts_driver_memory.load(std::memory_order_relaxed), 0))
    g_driver_memory_count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace vramscope::probe
