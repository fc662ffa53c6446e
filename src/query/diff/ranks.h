// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

// Many processes of one program, from one recording or a thousand, as one answer: each at the
// highest instant of its device; ranks that share one, each at its own.
namespace vramscope::query {

// Takes recordings one after the other, each of which may be closed afterwards.
class RankFold {
 public:
  // `stretches`: into how many a rank's history is cut; 0: none is told.
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
