// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace vramscope::base {

int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

bool HasInvariantTsc() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  // CPUID 8000_0007h, EDX bit 8 (Intel SDM vol. 3, 18.17.1; AMD APM vol. 3).
  return __get_cpuid(0x80000007u, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1u << 8)) != 0;
#else
  return false;
#endif
}

ClockPair ReadClocks(bool use_tsc) {
  constexpr int kMaxTries = 5;
  constexpr uint64_t kUninterruptedTicks = 1000;  // below half a microsecond
  ClockPair best{};
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < kMaxTries && shortest > kUninterruptedTicks; ++i) {
    const uint64_t before = Ticks(use_tsc);
    const int64_t ns = MonotonicNs();
    const uint64_t took = Ticks(use_tsc) - before;
    if (took < shortest) {
      shortest = took;
      best = {.ticks = before + took / 2, .ns = ns};
    }
  }
  return best;
}

}  // namespace vramscope::base
