// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/memory_words.h"
#include "tables/recording.h"
#include "util/status.h"

// What changed between two recordings, and why. They are aligned by iteration, phase, layer, name
// and line, never by time or address.
namespace vramscope::query {

// What a row's path consists of.
inline constexpr const char* kDiffLevels[] = {"device", "category", "phase",
                                              "module", "name",     "line"};

// A frame above a row's line, where the stacks of its bytes part.
struct DiffCaller {
  std::string line;
  uint64_t a_bytes = 0;
  uint64_t b_bytes = 0;
  int64_t delta_bytes() const {
    return static_cast<int64_t>(b_bytes) - static_cast<int64_t>(a_bytes);
  }
};

struct DiffRow {
  std::vector<std::string> path;  // by kDiffLevels
  uint64_t a_bytes = 0;
  uint64_t b_bytes = 0;
  uint64_t a_count = 0;  // of allocations; 0 for slack
  uint64_t b_count = 0;
  std::vector<DiffCaller> callers;  // of a row that changed, where its line is called from several
  int64_t delta_bytes() const {
    return static_cast<int64_t>(b_bytes) - static_cast<int64_t>(a_bytes);
  }
};

// The same memory under another category: what kind of move it is, and how much.
struct DiffMove {
  std::vector<std::string> path;  // in B
  std::string from;               // the category in A
  uint64_t bytes = 0;
};

// A device of either recording: GPUs are aligned by their order.
struct DiffDevice {
  std::string name;       // "gpu0", "host", "cpu"; "gpu0/gpu3" where they are not the same
  bool compared = false;  // its rows are among `rows`
  uint64_t a_bytes = 0;   // at its own peak
  uint64_t b_bytes = 0;
};

struct DiffIteration {
  int64_t number = 0;
  uint64_t a_peak_bytes = 0;
  uint64_t b_peak_bytes = 0;
  uint64_t a_end_bytes = 0;
  uint64_t b_end_bytes = 0;
};

// One of several ranks of a side.
struct DiffRank {
  int32_t number = -1;  // -1: not known
  std::string name;     // "rank 3", or its file
  uint64_t peak_bytes = 0;
  bool compared = false;  // it has the median peak
  bool outlier = false;   // it is far from that
};

struct Diff {
  // At the peaks of the devices compared: the GPUs where there are some, else the CPU's tensors.
  // What other processes had is not in it.
  uint64_t a_bytes = 0;
  uint64_t b_bytes = 0;
  // Live at those instants without device memory (engines asleep): beside them.
  uint64_t a_unbacked_bytes = 0;
  uint64_t b_unbacked_bytes = 0;
  uint64_t threshold_bytes = 0;         // what differs by no more is not told
  uint64_t driver_threshold_bytes = 0;  // the same for the driver's rows and free bytes of pools
  bool same = false;                    // nothing differs by more than that
  std::vector<std::string> causes;      // the largest first
  std::vector<std::string> notes;       // what makes the two less comparable, and other facts
  std::vector<DiffDevice> devices;
  std::vector<DiffRow> rows;              // of the peaks; the largest change first
  std::vector<DiffRow> categories;        // path: the category
  std::vector<DiffRow> start;             // live at the first event of their processes
  std::vector<DiffMove> moves;            // at the peaks
  std::vector<DiffIteration> iterations;  // some of those that both have
  // Where a side is of several ranks; else empty.
  std::vector<DiffRank> a_ranks;
  std::vector<DiffRank> b_ranks;
  int64_t delta_bytes() const {
    return static_cast<int64_t>(b_bytes) - static_cast<int64_t>(a_bytes);
  }
};

// What is compared: a recording, or one rank's processes of it.
struct DiffSubject {
  const tables::Recording* recording = nullptr;
  std::optional<int32_t> rank{};

  bool Has(tables::ProcessId process) const {
    const auto& processes = recording->tables().processes;
    return !rank || (process.value != 0 && process.value < processes.size() &&
                     processes[process.value].rank == *rank);
  }
};

// ", called from train.py:12 in step": the one that has most of what changed; else nothing.
std::string CallerText(const std::vector<DiffCaller>& callers);

// An error where there is nothing to compare.
util::Result<Diff> MakeDiff(const DiffSubject& a, const DiffSubject& b);
inline util::Result<Diff> MakeDiff(const tables::Recording& a, const tables::Recording& b) {
  return MakeDiff(DiffSubject{&a}, DiffSubject{&b});
}

}  // namespace vramscope::query
