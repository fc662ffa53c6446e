// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "query/diff.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// One of the recordings that a distributed program left.
struct RankRecording {
  std::string file;
  const tables::Recording* recording = nullptr;
};

// Compares the rank with the median peak of A with that of B. A rank that is far from its median is
// named, with what it has more; where A has no such one at all, that is a cause. Each is of one
// recording at least.
util::Result<Diff> MakeRanksDiff(const std::vector<RankRecording>& a,
                                 const std::vector<RankRecording>& b,
                                 size_t* compared_a,
                                 size_t* compared_b);

}  // namespace vramscope::query
