// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "query/dimensions/fold_names.h"
#include "query/report/report_parts.h"

namespace vramscope::query {
namespace {

using testing::ElementsAre;

ModuleEntry Entry(const std::string& module, uint64_t bytes, const char* type = "Linear") {
  return {tables::DeviceId{1}, module, type, bytes, 2, {{"activation", bytes}}};
}

// "name bytes count modules" of each.
std::vector<std::string> Folded(const std::vector<ModuleEntry>& entries) {
  std::vector<std::string> lines;
  for (const ModuleEntry& entry : FoldModules(entries)) {
    lines.push_back(entry.module + " " + std::to_string(entry.bytes) + " " +
                    std::to_string(entry.count) + " " + std::to_string(entry.modules));
  }
  return lines;
}

TEST(FoldModules, LayersThatDifferInTheirNumberAlone) {
  EXPECT_THAT(
      Folded({Entry("head", 900), Entry("blocks.0.attn", 500), Entry("blocks.2.attn", 400),
              Entry("blocks.3.attn", 400), Entry("blocks.10.attn", 399),
              Entry("blocks.1.attn", 397)}),
      ElementsAre("blocks.[1-3,10].attn 1596 8 4", "head 900 2 1", "blocks.0.attn 500 2 1"));
  EXPECT_THAT(Folded({Entry("encoder_layer_0.mlp.1", 8), Entry("encoder_layer_1.mlp.1", 8)}),
              ElementsAre("encoder_layer_[0,1].mlp.1 16 4 2"));
}

TEST(FoldModules, CategoriesAreSummed) {
  ModuleEntry a = Entry("h.0", 100);
  a.categories = {{"activation", 70}, {"parameter", 30}};
  ModuleEntry b = a;
  b.module = "h.1";
  const auto folded = FoldModules({a, b});
  ASSERT_EQ(folded.size(), 1u);
  EXPECT_THAT(folded[0].categories,
              ElementsAre(testing::Pair("activation", 140u), testing::Pair("parameter", 60u)));
}

TEST(FoldModules, WhatIsNotAlikeStaysApart) {
  ModuleEntry state = Entry("h.1", 100);
  state.categories = {{"optimizer state", 100}};
  ModuleEntry elsewhere = Entry("h.3", 100);
  elsewhere.device = tables::DeviceId{2};
  EXPECT_THAT(Folded({Entry("h.0", 100), state, Entry("h.2", 100, "Conv2d"), elsewhere}),
              ElementsAre("h.0 100 2 1", "h.1 100 2 1", "h.2 100 2 1", "h.3 100 2 1"));
}

// Digits within a word name something else, and a name with the mark in it is taken as it is.
TEST(FoldModules, NumbersThatDoNotCountLayers) {
  EXPECT_THAT(
      Folded({Entry("conv1", 100), Entry("conv2", 100), Entry("a#.1", 50), Entry("a#.2", 50),
              Entry("", 10)}),
      ElementsAre("conv1 100 2 1", "conv2 100 2 1", "a#.1 50 2 1", "a#.2 50 2 1", " 10 2 1"));
}

TEST(FoldModules, SeveralNumbersAndManyRanges) {
  std::vector<ModuleEntry> experts;
  for (int layer = 0; layer < 2; ++layer) {
    for (int expert = 0; expert < 12; expert += 2) {
      experts.push_back(Entry("l." + std::to_string(layer) + ".e." + std::to_string(expert), 10));
    }
  }
  EXPECT_THAT(Folded(experts), ElementsAre("l.[0,1].e.[0,2,4,6,...] 120 24 12"));
}

}  // namespace

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

TEST(FoldNamesTest, NumbersAloneAreCalledLayers) {
  EXPECT_EQ(LayerWords("0"), "layer 0");
  EXPECT_EQ(LayerWords("2.0.weight"), "layer 2.0.weight");
  EXPECT_EQ(LayerWords("[0-3] x4"), "layers [0-3] x4");
  EXPECT_EQ(LayerWords("0 and 3 more"), "layers 0 and 3 more");
  EXPECT_EQ(LayerWords("blocks.0"), "blocks.0");
  EXPECT_EQ(LayerWords(""), "");
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
