// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/pytree_path.h"

#include <gtest/gtest.h>

namespace vramscope::resolve {
namespace {

using format::NameKind;

TEST(PytreePath, BeginsWithItsCollection) {
  EXPECT_EQ(ShowPytreePath("state.params['Dense_0']['kernel']"), "params/Dense_0/kernel");
  EXPECT_EQ(ShowPytreePath("state.opt_state[0].mu['Dense_0']['kernel']"),
            "opt_state/0/mu/Dense_0/kernel");
  EXPECT_EQ(ShowPytreePath("variables['params']['a.b']['w[0]']"), "params/a.b/w[0]");
  EXPECT_EQ(ShowPytreePath("params[3]"), "params/3");
}

TEST(PytreePath, OthersBeginWithTheArgument) {
  EXPECT_EQ(ShowPytreePath("batch['image']"), "batch/image");
  EXPECT_EQ(ShowPytreePath("dynamic_nodonate['first'][2]"), "dynamic_nodonate/first/2");
  EXPECT_EQ(ShowPytreePath("model.layers[0].weight"), "model/layers/0/weight");
  EXPECT_EQ(ShowPytreePath("broken['x"), "broken/x");
  EXPECT_EQ(ShowPytreePath("broken["), "broken/");
  EXPECT_EQ(ShowPytreePath(""), "");
}

TEST(PytreePath, SaysWhatItIs) {
  EXPECT_EQ(KindOfPytreePath("state.params['Dense_0']['kernel']"), NameKind::kParameter);
  EXPECT_EQ(KindOfPytreePath("state.opt_state[0].nu['Dense_0']['bias']"),
            NameKind::kOptimizerState);
  EXPECT_EQ(KindOfPytreePath("s[1].mu['Dense_0']['bias']"), NameKind::kOptimizerState);
  EXPECT_EQ(KindOfPytreePath("state.batch_stats['norm']['mean']"), NameKind::kBuffer);
  EXPECT_EQ(KindOfPytreePath("model.layers[0].weight"), NameKind::kParameter);
  EXPECT_EQ(KindOfPytreePath("batch['image']"), NameKind::kTag);
  EXPECT_EQ(KindOfPytreePath(""), NameKind::kTag);
}

TEST(PytreePath, OnlyWithBrackets) {
  EXPECT_TRUE(IsPytreePath("params['w']"));
  EXPECT_FALSE(IsPytreePath("layers.0.weight"));
}

}  // namespace
}  // namespace vramscope::resolve
