// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// NVML's samples and the program's events have one clock, read through two conversions: they agree
// to within this.
inline constexpr int64_t kClockErrorNs = 10'000;
// What NVML may list of a process that has nothing, and what figures may differ by.
inline constexpr int64_t kNearlyNothing = 4 << 20;
// The kernel module has 9 MiB for a process with a context on an H200.
inline constexpr int64_t kLargestRm = 32 << 20;

// Two figures of the device and the implicit calls between them.
struct Interval {
  When until;                 // the later one's
  int64_t from_ns = 0;        // the earlier one's place in the order
  int64_t from_begin_ns = 0;  // when it was taken
  int64_t used_bytes = 0;     // the later one
  int64_t growth_bytes = 0;   // explicit calls included
  bool is_plain = true;       // nothing but explicit calls moved memory in it
  std::vector<uint32_t> calls;
};

// From when on a process that began late is known to have had memory before its recording.
struct LateStart {
  uint32_t process = kNone;
  int64_t time_ns = 0;
  size_t figure = 0;             // NVML's
  std::optional<size_t> sample;  // the last before it
};

struct Series {
  std::vector<When> calls;  // of DeviceInput::calls, with the ends of those that have none
  std::vector<Interval> intervals;
  std::vector<uint32_t> unpriced;  // calls that no two figures are around
  std::vector<LateStart> late_starts;
  std::vector<bool> counted;  // the samples taken while a recorded process used the device
  // And while no call of any was under way, nor the end of one that had a context.
  std::vector<bool> calm;
  // The same, but for calls that have another process's memory moved, or for ends.
  std::vector<bool> calm_but_for_checkpoints;
  std::vector<bool> calm_but_for_ends;
  // Those taken while none did: all of their figure is other processes'.
  std::vector<bool> baseline;
  std::optional<int64_t> offset;  // of readings to samples
};

Series MakeSeries(const DeviceInput& input);

}  // namespace vramscope::resolve::price
