// SPDX-License-Identifier: Apache-2.0
#include "query/dimensions/fold_names.h"

#include <gtest/gtest.h>

namespace vramscope::query {
namespace {

TEST(FoldNamesTest, NumbersOfLayersAreTakenOut) {
  const NumberedName name = SplitNumbers("model.layers.3.experts_12.w1");
  EXPECT_EQ(name.shape, "model.layers.#.experts_#.w1");
  EXPECT_EQ(name.numbers, (std::vector<uint32_t>{3, 12}));
  EXPECT_EQ(SplitNumbers("layer1.conv2d").shape, "layer1.conv2d");
  EXPECT_EQ(SplitNumbers("").shape, "");
}

TEST(FoldNamesTest, NumbersReadAsRanges) {
  EXPECT_EQ(RangeText({3}), "3");
  EXPECT_EQ(RangeText({0, 1}), "[0,1]");
  EXPECT_EQ(RangeText({0, 1, 2, 5, 7, 8, 9}), "[0-2,5,7-9]");
}

TEST(FoldNamesTest, RepeatedLayersAreOneName) {
  EXPECT_EQ(FoldNames({{"blocks.0.mlp", 1}, {"blocks.1.mlp", 1}, {"blocks.2.mlp", 1}}),
            "blocks.[0-2].mlp x3");
  EXPECT_EQ(FoldNames({{"blocks.2.expand", 3}, {"blocks.2.contract", 1}}),
            "blocks.2.{contract,expand}");
  EXPECT_EQ(FoldNames({{"blocks.0", 1}, {"blocks.0.mlp", 1}, {"blocks.1", 1}}), "blocks.[0,1] x2");
}

TEST(FoldNamesTest, ModelsOfAClassAreOneName) {
  EXPECT_EQ(FoldNames({{"Linear", 1}, {"Linear#2", 1}, {"Linear#3", 1}}), "Linear#[1-3] x3");
  EXPECT_EQ(FoldNames({{"Net.proj", 1}, {"Net#2.proj", 1}}), "Net#[1,2].proj x2");
  EXPECT_EQ(FoldNames({{"Net#4", 1}}), "Net#4");
  EXPECT_EQ(FoldNames({{"Net", 1}, {"Teacher", 1}}), "Net and 1 more");
}

TEST(FoldNamesTest, TheModelOfALayer) {
  EXPECT_EQ(ModelOf("Net#2.head"), "Net#2");
  EXPECT_EQ(ModelOf("Linear"), "Linear");
  EXPECT_EQ(ModelOf("blocks.0.mlp"), "");
  EXPECT_EQ(ModelOf("0"), "");
}

TEST(FoldNamesTest, TheHeaviestNameStandsForAll) {
  EXPECT_EQ(FoldNames({{"head", 60}, {"norm", 40}}), "head and 1 more");
  EXPECT_EQ(FoldNames({{"head", 990}, {"norm", 10}}), "head");
  EXPECT_EQ(FoldNames({{"", 60}, {"norm", 40}}), "norm");
  EXPECT_EQ(FoldNames({{"", 60}}), "");
  EXPECT_EQ(FoldNames({}), "");
}

}  // namespace
}  // namespace vramscope::query
