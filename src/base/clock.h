// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

// Time stamps cheap enough for every allocation. If the processor's time stamp counter is invariant
// (same rate on all cores, never stopping), a stamp is that counter, "ticks"; otherwise it is
// CLOCK_MONOTONIC in nanoseconds. Readers convert ticks through (ticks, nanoseconds) pairs that the
// writer leaves in the trace: see "Time" in docs/FORMAT.md.
namespace vramscope::base {

// CLOCK_MONOTONIC in nanoseconds: what Python calls time.monotonic_ns(). Safe in any thread.
int64_t MonotonicNs();

// Whether stamps can be the processor's counter on this machine. Constant after the first call.
bool HasInvariantTsc();

// A stamp; `use_tsc` is what HasInvariantTsc() said when the trace was begun.
inline uint64_t Ticks(bool use_tsc) {
#if defined(__x86_64__)
  if (use_tsc)
    return __rdtsc();
#else
  (void)use_tsc;
#endif
  return static_cast<uint64_t>(MonotonicNs());
}

// Both clocks at one instant.
struct ClockPair {
  uint64_t ticks;
  int64_t ns;
};
// Reads again, a few times at most, where the thread was interrupted between the two. Safe in any
// thread.
ClockPair ReadClocks(bool use_tsc);

}  // namespace vramscope::base
