// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace vramscope::resolve {

// What went against the invariants, with the first case of each.
struct Violations {
  uint64_t freed_twice = 0;
  std::string first_freed_twice;
  uint64_t outside_segment = 0;
  std::string first_outside_segment;
  uint64_t overfull_segments = 0;
  std::string first_overfull;
};

struct ProcessProgress {
  bool seen = false;
  bool began_late = false;  // it was under way when its recording began
  bool resumed = false;     // it recorded after a pause
  bool had_torch = false;   // and PyTorch imported then
  bool torn_down = false;
  bool ended = false;
  uint32_t modules_gone = 0;
  int64_t teardown_ns = 0;
  int64_t exit_ns = 0;  // the last instant before its teardown or its end; 0: not seen yet
  int64_t last_ns = 0;
};

// A free of an address that was freed a moment ago and not given out since is a second free. Only
// recent addresses are remembered: what is found is certain, what is older goes as unknown.
class RecentFrees {
 public:
  RecentFrees() : addresses_(size_t{1} << 14) {}
  void Note(trace::ProcessId process, uint64_t address) {
    const uint64_t key = KeyOf(process, address);
    addresses_[SlotOf(key)] = key;
  }
  bool Has(trace::ProcessId process, uint64_t address) const {
    const uint64_t key = KeyOf(process, address);
    return addresses_[SlotOf(key)] == key;
  }
  void Forget() { std::fill(addresses_.begin(), addresses_.end(), 0); }

 private:
  // The upper bits of addresses are mostly zero. A forked child's are its parent's.
  static uint64_t KeyOf(trace::ProcessId process, uint64_t address) {
    return address ^ static_cast<uint64_t>(process.value) << 48;
  }
  size_t SlotOf(uint64_t address) const {
    return (address * 0x9e3779b97f4a7c15u >> 40) & (addresses_.size() - 1);
  }
  std::vector<uint64_t> addresses_;
};

// How far the ledger is in the events, and what of them made no sense: all its parts share it.
struct Progress {
  explicit Progress(const trace::Trace& trace);

  std::vector<ProcessProgress> processes;
  int64_t now_ns = 0;     // of the event under way
  bool finished = false;  // what ends now was never freed
  RecentFrees frees;
  Violations violations;
  trace::Loss unknown_frees;
  trace::Loss inherited_frees;
  trace::Loss double_allocs;
  trace::Loss unknown_names;
};

}  // namespace vramscope::resolve
