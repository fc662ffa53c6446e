// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

// Managed memory: kernels that touch it move its pages to the device while they run, and no call
// says so. A process that has none pays one load a call that synchronises.
namespace vramscope::probe::cuda {

extern std::atomic<bool> g_has_managed;

inline void NoteManagedAlloc() {
  if (!g_has_managed.load(std::memory_order_relaxed))
    g_has_managed.store(true, std::memory_order_relaxed);
}
inline bool MayPagesMove() {
  return g_has_managed.load(std::memory_order_relaxed);
}
// The kernels before a call that synchronised are done: reads what their pages take, 100 times a
// second at most.
void ReadPagesAfterSynchronisation();

}  // namespace vramscope::probe::cuda
