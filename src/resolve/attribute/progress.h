// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format/enums.h"
#include "trace/trace.h"

namespace vramscope::resolve {

// Counts broken invariants, with the first case of each.
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
  bool began_late = false;  // it was running when its recording began
  bool resumed = false;     // it recorded after a pause
  bool had_torch = false;   // PyTorch was imported by then
  bool torn_down = false;
  bool ended = false;
  uint32_t modules_gone = 0;
  int64_t teardown_ns = 0;
  int64_t exit_ns = 0;  // the last instant before its teardown or its end; 0: not seen yet
  int64_t last_ns = 0;
};

// Detects double frees: an address that was freed recently and not allocated since. Only recent
// addresses are kept, so a hit is certain; an older double free counts as an unknown free.
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
  // The upper bits of addresses are mostly zero. A forked child has its parent's addresses, hence
  // the process.
  static uint64_t KeyOf(trace::ProcessId process, uint64_t address) {
    return address ^ static_cast<uint64_t>(process.value) << 48;
  }
  size_t SlotOf(uint64_t address) const {
    return (address * 0x9e3779b97f4a7c15u >> 40) & (addresses_.size() - 1);
  }
  std::vector<uint64_t> addresses_;
};

// The ledger's position in the events and its counts of inconsistent ones. All parts of the ledger
// share it.
struct Progress {
  explicit Progress(const trace::Trace& trace);

  std::vector<ProcessProgress> processes;
  int64_t now_ns = 0;     // time of the current event
  bool finished = false;  // all events are read; rows that end now were never freed
  RecentFrees frees;
  Violations violations;
  trace::Loss unknown_frees;
  trace::Loss inherited_frees;
  trace::Loss double_allocs;
  trace::Loss unknown_names;
};

inline Progress::Progress(const trace::Trace& trace) : processes(trace.processes().size()) {
  unknown_frees.name = format::LossName(static_cast<uint64_t>(format::Loss::kUnknownFree));
  inherited_frees.name = format::LossName(static_cast<uint64_t>(format::Loss::kInheritedFree));
  double_allocs.name = format::LossName(static_cast<uint64_t>(format::Loss::kDoubleAlloc));
  unknown_names.name = format::LossName(static_cast<uint64_t>(format::Loss::kNamesWithoutMemory));
}

}  // namespace vramscope::resolve
