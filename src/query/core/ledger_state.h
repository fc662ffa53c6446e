// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vramscope::query {

// What a segment has at an instant: the one place that knows held - used = free.
//
//   held   |##############################|   allocations that back it, less their rounding, and
//                                             counters that name it
//   used      |######|      |####|            allocations that are cut out of it
//   free   |##|      |######|    |#########|  one figure, wherever the gaps are: never below 0
//
// Free bytes belong to the segment's site, with its part in use while anything is used (FreeSite()
// of query/dimensions/cells.h). Memory without device memory below it (an unbacked
// site) is in neither sum. viewer/src/model/ledger.js has the same rules for the page, and
// tests/e2e/report/test_one_truth.py compares them.
struct SegmentState {
  // Sums modulo 2^64, so that what is taken away is added as its complement, and figures of a
  // damaged file do no harm.
  uint64_t held_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t used_count = 0;

  void Back(uint64_t bytes) { held_bytes += bytes; }
  void Use(uint64_t bytes, uint64_t count) {
    used_bytes += bytes;
    used_count += count;
  }
  void Add(const SegmentState& other) {
    held_bytes += other.held_bytes;
    used_bytes += other.used_bytes;
    used_count += other.used_count;
  }
  bool IsInUse() const { return static_cast<int64_t>(used_count) > 0; }
  uint64_t HeldBytes() const { return NotBelowZero(held_bytes); }
  uint64_t FreeBytes() const { return NotBelowZero(held_bytes - used_bytes); }

 private:
  static uint64_t NotBelowZero(uint64_t bytes) {
    return static_cast<int64_t>(bytes) > 0 ? bytes : 0;
  }
};

}  // namespace vramscope::query
