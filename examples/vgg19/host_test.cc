// SPDX-License-Identifier: Apache-2.0
// What the kernels share with the host, and the CPU reference, by the definitions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdio>
#include <fstream>
#include <random>
#include <stdexcept>

#include "files.h"
#include "layers.h"
#include "reference.h"
#include "transforms.h"

namespace vgg19 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> RandomValues(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  }
  return values;
}

// The definition of a 3 x 3 convolution of one plane with a rim of zeros, at one output.
double At(const std::vector<float>& plane,
          int height,
          int width,
          const float* filter,
          int y,
          int x) {
  double sum = 0;
  for (int tap = 0; tap < 9; ++tap) {
    const int row = y + tap / 3 - 1;
    const int column = x + tap % 3 - 1;
    if (row >= 0 && row < height && column >= 0 && column < width) {
      sum += static_cast<double>(plane[static_cast<size_t>(row * width + column)]) * filter[tap];
    }
  }
  return sum;
}

TEST(Transforms, WinogradIsTheConvolutionOfATile) {
  const std::vector<float> tile = RandomValues(16, 1);
  const std::vector<float> filter = RandomValues(9, 2);
  float u[kWinogradPoints];
  float v[kWinogradPoints];
  float output[4];
  WinogradFilter(filter.data(), u);
  WinogradInput(tile.data(), v);
  for (int i = 0; i < kWinogradPoints; ++i) {
    v[i] *= u[i];
  }
  WinogradOutput(v, output);
  for (int y = 0; y < 2; ++y) {
    for (int x = 0; x < 2; ++x) {
      EXPECT_NEAR(output[y * 2 + x], At(tile, 4, 4, filter.data(), y + 1, x + 1), 1e-5);
    }
  }
}

struct Complex {
  double x = 0;
  double y = 0;
};

// By definition, of size x size values; `sign` 1 is the inverse, size * size times too large.
std::vector<Complex> Transform(const std::vector<Complex>& values, int size, int sign) {
  std::vector<Complex> result(values.size());
  for (int v = 0; v < size; ++v) {
    for (int u = 0; u < size; ++u) {
      std::complex<double> sum = 0;
      for (int y = 0; y < size; ++y) {
        for (int x = 0; x < size; ++x) {
          const Complex& value = values[static_cast<size_t>(y * size + x)];
          const double angle = sign * 2 * M_PI * ((u * x + v * y) % size) / size;
          sum += std::complex<double>(value.x, value.y) * std::polar(1.0, angle);
        }
      }
      result[static_cast<size_t>(v * size + u)] = {sum.real(), sum.imag()};
    }
  }
  return result;
}

// With the rim that conv_fft.cu leaves, nothing wraps around from one edge to the other.
TEST(Transforms, TheSmallestFftIsLargeEnough) {
  constexpr int kPicture = 5;
  const std::vector<float> picture = RandomValues(kPicture * kPicture, 3);
  const std::vector<float> filter = RandomValues(9, 4);
  for (const int size : {FftSmallest(kPicture), kPicture + 2, 9}) {
    std::vector<Complex> a(static_cast<size_t>(size * size));
    std::vector<Complex> b = a;
    for (int y = 0; y < kPicture; ++y) {
      for (int x = 0; x < kPicture; ++x) {
        a[static_cast<size_t>(y * size + x)].x = picture[static_cast<size_t>(y * kPicture + x)];
      }
    }
    for (int tap = 0; tap < 9; ++tap) {
      b[static_cast<size_t>(FftTap(tap / 3, size) * size + FftTap(tap % 3, size))].x = filter[tap];
    }
    a = Transform(a, size, -1);
    b = Transform(b, size, -1);
    for (size_t i = 0; i < a.size(); ++i) {
      Complex sum;
      AddProductWithConjugate(a[i], b[i], &sum);
      a[i] = sum;
    }
    a = Transform(a, size, 1);
    for (int y = 0; y < kPicture; ++y) {
      for (int x = 0; x < kPicture; ++x) {
        EXPECT_NEAR(a[static_cast<size_t>(y * size + x)].x / (size * size),
                    At(picture, kPicture, kPicture, filter.data(), y, x), 1e-9)
            << size << ": " << y << ", " << x;
      }
    }
  }
}

TEST(Transforms, FftSizesOfVgg19) {
  EXPECT_EQ(FftSmooth(FftSmallest(224)), 225);
  EXPECT_EQ(FftSmooth(FftSmallest(112)), 120);
  EXPECT_EQ(FftSmooth(FftSmallest(56)), 60);
  EXPECT_EQ(FftSmooth(FftSmallest(28)), 30);
  EXPECT_EQ(FftSmooth(FftSmallest(14)), 15);
  EXPECT_EQ(FftSmooth(22), 24);
}

TEST(Layers, AreTorchvisions) {
  const std::vector<Layer> layers = Vgg19(224);
  size_t parameters = 0;
  std::vector<std::string> names;
  for (const Layer& layer : layers) {
    parameters += layer.weight_elements() + layer.bias_elements();
    if (!layer.parameter.empty()) {
      names.push_back(layer.parameter);
    }
  }
  EXPECT_EQ(parameters, 143667240U);  // torchvision's figures for vgg19
  EXPECT_THAT(names,
              ElementsAre("features.0", "features.2", "features.5", "features.7", "features.10",
                          "features.12", "features.14", "features.16", "features.19", "features.21",
                          "features.23", "features.25", "features.28", "features.30", "features.32",
                          "features.34", "classifier.0", "classifier.3", "classifier.6"));
  EXPECT_EQ(Vgg19(32)[36].name, "pool5");
  EXPECT_EQ(Vgg19(32)[36].output.height, 1);
}

TEST(Reference, IsTheDefinitionOfAConvolution) {
  const Layer layer{"", "", Kind::kConvolution, {3, 6, 5}, {7, 6, 5}};
  constexpr int kBatch = 2;
  const std::vector<float> input = RandomValues(kBatch * layer.input.elements(), 5);
  const std::vector<float> weight = RandomValues(layer.weight_elements(), 6);
  const std::vector<float> bias = RandomValues(7, 7);
  const std::vector<float> output = Reference(layer, kBatch, input, weight.data(), bias.data());
  size_t i = 0;
  for (size_t picture = 0; picture < kBatch; ++picture) {
    for (size_t o = 0; o < 7; ++o) {
      for (int y = 0; y < 6; ++y) {
        for (int x = 0; x < 5; ++x) {
          double sum = bias[o];
          for (size_t c = 0; c < 3; ++c) {
            const auto from = input.begin() + static_cast<long>((picture * 3 + c) * 30);
            sum += At({from, from + 30}, 6, 5, &weight[(o * 3 + c) * 9], y, x);
          }
          EXPECT_NEAR(output[i++], sum, 1e-5);
        }
      }
    }
  }
}

TEST(Reference, Pools) {
  const Layer largest{"", "", Kind::kMaxPool, {1, 2, 4}, {1, 1, 2}};
  EXPECT_THAT(Reference(largest, 1, {1, 2, 3, 4, 5, 6, 7, 8}, nullptr, nullptr), ElementsAre(6, 8));
  // From fewer values than there are outputs, and from more, as PyTorch's AdaptiveAvgPool2d.
  const Layer wider{"", "", Kind::kAveragePool, {1, 1, 2}, {1, 1, 3}};
  EXPECT_THAT(Reference(wider, 1, {1, 3}, nullptr, nullptr), ElementsAre(1, 2, 3));
  const Layer narrower{"", "", Kind::kAveragePool, {1, 1, 5}, {1, 1, 2}};
  EXPECT_THAT(Reference(narrower, 1, {1, 2, 3, 4, 5}, nullptr, nullptr), ElementsAre(2, 4));
}

TEST(Reference, ErrorsAreSharesOfTheLargestValue) {
  EXPECT_EQ(LargestError({1, 2}, {1, 2}), 0);
  EXPECT_DOUBLE_EQ(LargestError({1, 3}, {1, -4}), 7.0 / 4);
  EXPECT_TRUE(std::isinf(LargestError({1, NAN}, {1, 2})));
  EXPECT_TRUE(std::isinf(LargestError({1}, {1, 2})));
}

// The result of ReadPictures() for a file with this content.
std::string ErrorOf(const std::string& name, const std::string& content) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << content;
  try {
    ReadPictures(path, 1, 32);
  } catch (const std::runtime_error& error) {
    std::remove(path.c_str());
    return error.what();
  }
  return "";
}

TEST(Files, DamagedPicturesAreErrors) {
  EXPECT_THAT(ErrorOf("a.ppm", "P5\n1 1\n255\n"), HasSubstr("no binary .ppm"));
  EXPECT_THAT(ErrorOf("a.ppm", "P6\n1 -1\n255\n"), HasSubstr("no binary .ppm"));
  EXPECT_THAT(ErrorOf("a.ppm", "P6\n2 2\n255\nabc"), HasSubstr("ends too early"));
  EXPECT_THAT(ErrorOf("a.npy", "\x93NUMPY"), HasSubstr("ends too early"));
  EXPECT_THAT(ErrorOf("a.npy", "GIF89a"), HasSubstr("neither"));
  EXPECT_THAT(ErrorOf("a.npy", std::string("\x93NUMPY\x01\x00\x03\x00{} ", 13)),
              HasSubstr("no shape"));
}

TEST(Files, APpmIsScaledAndNormalised) {
  const std::string path = ::testing::TempDir() + "vgg19.ppm";
  // Two pixels, black and white: scaled to 4 x 4, the left half is nearer to black.
  std::ofstream(path, std::ios::binary) << "P6 # a comment\n2 1\n255\n"
                                        << std::string(3, '\0') << std::string(3, '\xff');
  const std::vector<float> pictures = ReadPictures(path, 2, 4);
  std::remove(path.c_str());
  ASSERT_EQ(pictures.size(), 2U * 3 * 16);
  const auto red = [](float value) { return (value - 0.485f) / 0.229f; };
  EXPECT_FLOAT_EQ(pictures[0], red(0));
  EXPECT_FLOAT_EQ(pictures[1], red(0.25f));
  EXPECT_FLOAT_EQ(pictures[2], red(0.75f));
  EXPECT_FLOAT_EQ(pictures[15], red(1));
  EXPECT_EQ(pictures[16], (0 - 0.456f) / 0.224f);
  EXPECT_EQ(pictures[48], pictures[0]);  // the second picture is the first one again
}

}  // namespace
}  // namespace vgg19
