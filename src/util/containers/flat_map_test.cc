// SPDX-License-Identifier: Apache-2.0
#include "util/containers/flat_map.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

namespace vramscope::util {
namespace {

TEST(FlatMapTest, FindsWhatWasAdded) {
  FlatMap map;
  EXPECT_EQ(map.Find(0), FlatMap::kNone);
  map.FindOrAdd(0) = 7;
  map.FindOrAdd(UINT64_MAX) = 8;
  EXPECT_EQ(map.Find(0), 7u);
  EXPECT_EQ(map.Find(UINT64_MAX), 8u);
  EXPECT_EQ(map.FindOrAdd(0), 7u);
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(map.Erase(0), 7u);
  EXPECT_EQ(map.Erase(0), FlatMap::kNone);
  EXPECT_EQ(map.Find(0), FlatMap::kNone);
  EXPECT_EQ(map.size(), 1u);
}

// Few distinct keys, so that chains of followers build up and are closed again.
TEST(FlatMapTest, BehavesLikeAMapUnderRandomUse) {
  for (const uint64_t keys : {40u, 1000u, 100000u}) {
    std::mt19937_64 random(keys);
    FlatMap map;
    std::unordered_map<uint64_t, uint32_t> model;
    for (uint32_t i = 0; i < 200'000; ++i) {
      const uint64_t key = (random() % keys) << 9;
      if (random() % 2 == 0) {
        map.FindOrAdd(key) = i;
        model[key] = i;
      } else {
        const auto found = model.find(key);
        ASSERT_EQ(map.Erase(key), found == model.end() ? FlatMap::kNone : found->second);
        model.erase(key);
      }
      const uint64_t probe = (random() % keys) << 9;
      const auto found = model.find(probe);
      ASSERT_EQ(map.Find(probe), found == model.end() ? FlatMap::kNone : found->second);
    }
    EXPECT_EQ(map.size(), model.size());
  }
}

}  // namespace
}  // namespace vramscope::util
