// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <gtest/gtest.h>

namespace vramscope::base {
namespace {

TEST(ClockTest, BothClocksAreOfTheSameInstant) {
  for (const bool use_tsc : {false, HasInvariantTsc()}) {
    for (int i = 0; i < 1000; ++i) {
      const int64_t first_ns = MonotonicNs();
      const uint64_t first_ticks = Ticks(use_tsc);
      const ClockPair pair = ReadClocks(use_tsc);
      const uint64_t last_ticks = Ticks(use_tsc);
      const int64_t last_ns = MonotonicNs();
      ASSERT_LE(first_ns, pair.ns);
      ASSERT_LE(pair.ns, last_ns);
      ASSERT_LE(first_ticks, pair.ticks);
      ASSERT_LE(pair.ticks, last_ticks);
    }
  }
}

}  // namespace
}  // namespace vramscope::base
