// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/memory_words.h"
#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

// Recordings compared: two of them, the ranks of two programs, and all ranks of one.
//
// A diff says what changed and why. It aligns recordings by iteration, phase, layer, name and line,
// never by time or address.
namespace vramscope::query {

// What a row's path consists of.
inline constexpr const char* kDiffLevels[] = {"device", "category", "phase",
                                              "module", "name",     "line"};

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

// What a distributed program left: a recording of a rank, or one of several of them.
struct RankRecording {
  std::string file;
  DiffSubject subject;
};
// The ranks within a recording whose processes allocated, by number; of fewer than two the
// recording is one.
std::vector<RankRecording> RanksIn(const std::string& file, const tables::Recording& recording);
// From this number of ranks on, medians are compared and an outlier can be recognized.
inline constexpr size_t kFewestForOutlier = 3;

// Compares the rank with the median peak of A with that of B. A rank that is far from its median is
// named, with what it has more; where A has no such one at all, that is a cause. Each is of one
// recording at least.
util::Result<Diff> MakeRanksDiff(const std::vector<RankRecording>& a,
                                 const std::vector<RankRecording>& b,
                                 size_t* compared_a,
                                 size_t* compared_b);

// Puts many processes of one program, from one recording or a thousand, into one answer. Each is
// shown at the highest instant of its device; ranks that share a device, each at its own. Takes one
// recording after the other; the caller may close each after Add().
class RankFold {
 public:
  // `stretches`: the number of pieces of a rank's history; 0: no history.
  explicit RankFold(size_t stretches = 0) : stretches_(stretches) {}
  util::Status Add(const std::string& file, const tables::Recording& recording);
  RankReport Finish() &&;

 private:
  RankReport report_;
  int64_t last_wall_ns_ = 0;
  size_t stretches_;
};

// The ranks within one recording; none where its processes have fewer than two numbers.
util::Result<RankReport> RanksWithin(const tables::Recording& recording);

}  // namespace vramscope::query
