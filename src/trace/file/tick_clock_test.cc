// SPDX-License-Identifier: Apache-2.0
#include "trace/file/tick_clock.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace vramscope::trace {
namespace {

constexpr int64_t kBegan = 1'000'000'000;
constexpr double kRate = 0.4;  // 2.5 GHz

// The pair `ns` after the beginning, read wrong by `error_ns`.
TickClock::Anchor PairAt(int64_t ns, int64_t error_ns = 0) {
  return {static_cast<uint64_t>(static_cast<double>(ns) / kRate) + 1000, kBegan + ns + error_ns};
}

TEST(TickClock, PairsOfOneMomentSayNothingOfTheRate) {
  // 500 ns in 0.1 ms: 50 us too much after 10 ms.
  const std::vector<TickClock::Anchor> anchors = {PairAt(100'000, 500), PairAt(120'000, 500)};
  EXPECT_FALSE(TickClock(PairAt(0), anchors, {}).measured_rate());
  const TickClock borrowed(PairAt(0), anchors, kRate);
  EXPECT_LT(std::abs(borrowed.ToNs(PairAt(20'000'000).ticks) - (kBegan + 20'000'000)), 10);
  // They are better than nothing.
  const TickClock alone(PairAt(0), anchors, {});
  EXPECT_LT(std::abs(alone.ToNs(PairAt(20'000'000).ticks) - (kBegan + 20'000'000)), 110'000);
}

TEST(TickClock, OnePairLaterSaysIt) {
  const TickClock clock(PairAt(0), {PairAt(100'000, 500), PairAt(12'000'000, 500)}, 3 * kRate);
  ASSERT_TRUE(clock.measured_rate());
  EXPECT_NEAR(*clock.measured_rate(), kRate, kRate * 1e-4);
  EXPECT_LT(std::abs(clock.ToNs(PairAt(60'000'000).ticks) - (kBegan + 60'000'000)), 3'000);
}

TEST(TickClock, APairThatWasInterruptedIsLeftOut) {
  const TickClock clock(
      PairAt(0), {PairAt(20'000'000), PairAt(40'000'000, 5'000'000), PairAt(60'000'000)}, {});
  EXPECT_LT(std::abs(clock.ToNs(PairAt(40'000'000).ticks) - (kBegan + 40'000'000)), 10);
}

TEST(TickClock, StampsOfADamagedFileHaveATime) {
  const TickClock clock({0, INT64_MIN}, {}, 900.0);
  EXPECT_LT(clock.ToNs(uint64_t{1} << 63), clock.ToNs(0));
  EXPECT_LT(clock.ToNs(0), clock.ToNs((uint64_t{1} << 63) - 1));
}

}  // namespace
}  // namespace vramscope::trace
