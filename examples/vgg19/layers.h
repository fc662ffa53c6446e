// SPDX-License-Identifier: Apache-2.0
// VGG-19 as a list of layers, in the order and with the parameter names of torchvision.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace vgg19 {

// One picture, or what a layer makes of it: channels of height x width, float32.
struct Shape {
  int channels = 0;
  int height = 0;
  int width = 0;
  size_t elements() const { return static_cast<size_t>(channels) * height * width; }
};

enum class Kind { kConvolution, kRelu, kMaxPool, kAveragePool, kLinear };

struct Layer {
  std::string name;       // of the paper: conv1_1, relu1_1, pool1, ..., fc8
  std::string parameter;  // of torchvision: features.0, empty where a layer has none
  Kind kind = Kind::kRelu;
  Shape input;
  Shape output;

  // A convolution's weight is output x input x 3 x 3, a linear layer's output x input.
  size_t weight_elements() const;
  size_t bias_elements() const;
};

// For pictures of size x size, at least 32: the average pool makes 7 x 7 of whatever arrives.
std::vector<Layer> Vgg19(int size);

}  // namespace vgg19
