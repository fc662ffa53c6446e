// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "query/diff/diff.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// What a distributed program left: a recording of a rank, or one of several of them.
struct RankRecording {
  std::string file;
  DiffSubject subject;
};
// The ranks within a recording whose processes allocated, by number; of fewer than two the
// recording is one.
std::vector<RankRecording> RanksIn(const std::string& file, const tables::Recording& recording);
// From so many on their medians are compared: an outlier among them can be told.
inline constexpr size_t kFewestForOutlier = 3;

// Compares the rank with the median peak of A with that of B. A rank that is far from its median is
// named, with what it has more; where A has no such one at all, that is a cause. Each is of one
// recording at least.
util::Result<Diff> MakeRanksDiff(const std::vector<RankRecording>& a,
                                 const std::vector<RankRecording>& b,
                                 size_t* compared_a,
                                 size_t* compared_b);

}  // namespace vramscope::query
