// SPDX-License-Identifier: Apache-2.0
#include "query/predict/fit.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace vramscope::query {
namespace {

TEST(FitCurveTest, EqualBytesAreConstant) {
  const Curve curve = FitCurve({2, 4, 8}, {4096, 4096, 4096}).curve;
  EXPECT_DOUBLE_EQ(curve.constant, 4096);
  EXPECT_DOUBLE_EQ(curve.At(1000), 4096);
  EXPECT_EQ(curve.FormAt(1000), std::string("constant"));
}

TEST(FitCurveTest, TwoSizesTellConstantLinearAndSquare) {
  EXPECT_DOUBLE_EQ(FitCurve({2, 4}, {2000, 4000}).curve.At(16), 16000);
  EXPECT_DOUBLE_EQ(FitCurve({2, 4}, {5000, 6000}).curve.At(16), 12000);
  EXPECT_DOUBLE_EQ(FitCurve({2, 4}, {4000, 16000}).curve.At(16), 256000);
  // 1000 * size + 100 * size * size: steeper than any line from 0 on.
  EXPECT_NEAR(FitCurve({2, 4}, {2400, 5600}).curve.At(16), 16000 + 25600, 1);
}

TEST(FitCurveTest, ThreeSizesTellTheirSum) {
  const auto bytes = [](double size) { return 1e6 + 3e4 * size + 500 * size * size; };
  const Curve curve = FitCurve({8, 16, 32}, {bytes(8), bytes(16), bytes(32)}).curve;
  EXPECT_NEAR(curve.constant, 1e6, 1);
  EXPECT_NEAR(curve.linear, 3e4, 1);
  EXPECT_NEAR(curve.square, 500, 0.1);
  EXPECT_EQ(curve.FormAt(128), std::string("quadratic"));
}

TEST(FitCurveTest, TheSimplestCurveThatExplainsPaddedBytesIsTaken) {
  // A line, each figure padded to 512 bytes.
  const auto padded = [](double size) {
    return static_cast<double>((static_cast<long>(70'061 * size) + 511) / 512 * 512);
  };
  const Curve curve = FitCurve({4, 8, 16}, {padded(4), padded(8), padded(16)}).curve;
  EXPECT_EQ(curve.square, 0);
  EXPECT_NEAR(curve.At(64), 70'061 * 64, 70'061 * 64 * 0.01);
}

TEST(FitCurveTest, NumbersOfElementsAreCertain) {
  // 4 * 384 * (size + 1): a sequence with a token before it.
  EXPECT_TRUE(FitCurve({16, 32}, {4 * 384 * 17, 4 * 384 * 33}).certain);
  EXPECT_TRUE(FitCurve({16, 32}, {16 * 20, 32 * 36}).certain);
  EXPECT_TRUE(FitCurve({16, 32}, {100'000, 200'000}).certain);
  EXPECT_TRUE(FitCurve({16, 32, 64}, {20 * 20, 36 * 36, 68 * 68}).certain);
  // What the router of a mixture of experts gives one of them.
  EXPECT_FALSE(FitCurve({16, 32}, {512 * 131, 512 * 240}).certain);
  EXPECT_FALSE(FitCurve({16, 32}, {512 * 101, 512 * 240}).certain);
  EXPECT_FALSE(FitCurve({16, 32, 64}, {512 * 131, 512 * 240, 512 * 533}).certain);
}

TEST(FitCurveTest, AGuessIsNotBelowTheLargest) {
  EXPECT_GE(FitCurve({4, 8, 16}, {1000, 3000, 7900}).curve.At(16), 7900);
  EXPECT_GE(FitCurve({4, 8, 16}, {1000, 3900, 5100}).curve.At(16), 5100 - 1);
}

TEST(FitCurveTest, NoPartIsNegative) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<double> sizes;
    std::vector<double> bytes;
    const size_t count = 2 + random() % 4;
    for (size_t i = 0; i < count; ++i) {
      sizes.push_back(static_cast<double>(1 + random() % 64));
      bytes.push_back(static_cast<double>(random() % 1'000'000));
    }
    const Curve curve = FitCurve(sizes, bytes).curve;
    EXPECT_GE(curve.constant, 0);
    EXPECT_GE(curve.linear, 0);
    EXPECT_GE(curve.square, 0);
    EXPECT_GE(curve.At(128), curve.At(64));
  }
}

TEST(FitCurveTest, BytesThatSinkKeepTheirHighest) {
  EXPECT_DOUBLE_EQ(FitCurve({2, 4}, {9000, 4000}).curve.At(16), 9000);
  EXPECT_DOUBLE_EQ(FitCurve({2, 4, 8}, {9000, 4000, 3000}).curve.At(16), 9000);
}

}  // namespace
}  // namespace vramscope::query
