// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vramscope::output {

// Bytes for people, in that unit, or for "" in what suits them.
std::string BytesIn(uint64_t bytes, const std::string& unit);

// Where an axis from 0 ends and has its ticks: at multiples of 1, 2, 2.5 or 5 times a power of ten.
struct Axis {
  double end = 1;  // in bytes, or in seconds
  struct Tick {
    double value;
    std::string label;
  };
  std::vector<Tick> ticks;
  std::string unit;         // "GiB", "s"
  bool unit_fixed = false;  // somebody asked for that unit: figures beside the axis have it, too
  bool counts = false;      // of time: it is none, but a number of what `unit` says

  // Of an axis of bytes: a figure for people, in its unit where that is fixed.
  std::string Bytes(uint64_t bytes) const { return BytesIn(bytes, unit_fixed ? unit : ""); }
};
// Units of bytes by their names on an axis: "MiB", "GB", ...; 0: there is no such unit.
double UnitBytes(const std::string& unit);
// Goes at least as far as `largest`; in the unit that suits it, or in that one.
Axis ByteAxis(double largest_bytes, const std::string& unit = "");
// In place of what seconds count, where the data has no time at all: the axis has no ticks.
inline constexpr char kOneInstant[] = "one instant";
// Ends at `largest`. `counted`: what the seconds count in place of time, which is its unit then;
// "": they are seconds.
Axis TimeAxis(double largest_seconds, const std::string& counted = "");

// Places labels, wanted at `wanted` (ascending), at least `gap` apart and between `low` and `high`,
// as near to where they are wanted as that allows. Where there is too little room they get less
// than `gap`.
std::vector<double> SpreadLabels(const std::vector<double>& wanted,
                                 double gap,
                                 double low,
                                 double high);

}  // namespace vramscope::output
