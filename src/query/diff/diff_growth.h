// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "query/diff/diff_side.h"

// What the ends of iterations say of two recordings.
namespace vramscope::query {

struct KeyGrowth {
  DiffKey key;
  double bytes_per_iteration = 0;  // beyond those of the other recording
  uint64_t last_bytes = 0;
};
// What grew between all the iterations looked at, in `side` more than in `other`.
std::vector<KeyGrowth> GrowingMore(const DiffSide& side, const DiffSide& other);

// What grew between all of them in both alike: by the smaller rate.
std::vector<KeyGrowth> GrowingInBoth(const DiffSide& a, const DiffSide& b);

struct KeptMore {
  DiffKey key;
  DiffSum here;
  DiffSum other;
};
// What is alive at the end of the last iteration looked at, in `side` in more allocations.
std::vector<KeptMore> KeptBeyondIteration(const DiffSide& side, const DiffSide& other);

// Which iterations to look at of so many that both have: all that are needed to tell growth from a
// cache that fills.
std::vector<int64_t> IterationsToCompare(int64_t count);

}  // namespace vramscope::query
