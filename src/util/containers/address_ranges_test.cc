// SPDX-License-Identifier: Apache-2.0

#include "util/containers/address_ranges.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace vramscope::util {
namespace {

TEST(PageIndexTest, FindsTheRangeOfAnAddress) {
  PageIndex index;
  index.Add(100 * kMiB, 5 * kMiB, 1);
  index.Add(105 * kMiB, 3 * kMiB, 2);  // shares a page with the first
  EXPECT_EQ(index.Find(100 * kMiB - 1), FlatMap::kNone);
  EXPECT_EQ(index.Find(100 * kMiB), 1u);
  EXPECT_EQ(index.Find(105 * kMiB - 1), 1u);
  EXPECT_EQ(index.Find(105 * kMiB), 2u);
  EXPECT_EQ(index.Find(108 * kMiB), FlatMap::kNone);
  index.Remove(100 * kMiB, 5 * kMiB);
  EXPECT_EQ(index.Find(104 * kMiB), FlatMap::kNone);
  EXPECT_EQ(index.Find(105 * kMiB), 2u);
  index.Remove(105 * kMiB, 3 * kMiB);
  EXPECT_EQ(index.Find(105 * kMiB), FlatMap::kNone);
}

TEST(PageIndexTest, NonsenseIsNotIndexed) {
  PageIndex index;
  index.Add(1, UINT64_MAX, 1);
  index.Add(UINT64_MAX - 10, 100, 2);
  index.Add(0, uint64_t{1} << 60, 3);
  index.Add(4096, 0, 4);
  EXPECT_EQ(index.Find(4096), FlatMap::kNone);
  index.Remove(1, UINT64_MAX);
  index.Remove(77 * kMiB, kMiB);
}

}  // namespace

}  // namespace vramscope::util
