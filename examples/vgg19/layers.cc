// SPDX-License-Identifier: Apache-2.0
#include "layers.h"

namespace vgg19 {

namespace {

// The convolutions of each block; a pool that halves the picture ends it.
const std::vector<std::vector<int>> kBlocks = {{64, 64},
                                               {128, 128},
                                               {256, 256, 256, 256},
                                               {512, 512, 512, 512},
                                               {512, 512, 512, 512}};
constexpr int kPooled = 7;

}  // namespace

size_t Layer::weight_elements() const {
  switch (kind) {
    case Kind::kConvolution:
      return static_cast<size_t>(output.channels) * input.channels * 9;
    case Kind::kLinear:
      return output.elements() * input.elements();
    default:
      return 0;
  }
}

size_t Layer::bias_elements() const {
  return parameter.empty() ? 0 : static_cast<size_t>(output.channels);
}

std::vector<Layer> Vgg19(int size) {
  std::vector<Layer> layers;
  Shape at{3, size, size};
  const auto add = [&](const std::string& name, const std::string& parameter, Kind kind,
                       Shape output) {
    layers.push_back({name, parameter, kind, at, output});
    at = output;
  };

  int index = 0;  // in torchvision's `features`, where ReLUs and pools count too
  for (size_t block = 0; block < kBlocks.size(); ++block) {
    const std::string number = std::to_string(block + 1);
    for (size_t i = 0; i < kBlocks[block].size(); ++i) {
      const std::string place = number + "_" + std::to_string(i + 1);
      add("conv" + place, "features." + std::to_string(index), Kind::kConvolution,
          {kBlocks[block][i], at.height, at.width});
      add("relu" + place, "", Kind::kRelu, at);
      index += 2;
    }
    add("pool" + number, "", Kind::kMaxPool, {at.channels, at.height / 2, at.width / 2});
    ++index;
  }
  add("avgpool", "", Kind::kAveragePool, {at.channels, kPooled, kPooled});
  add("fc6", "classifier.0", Kind::kLinear, {4096, 1, 1});
  add("relu6", "", Kind::kRelu, at);
  add("fc7", "classifier.3", Kind::kLinear, {4096, 1, 1});
  add("relu7", "", Kind::kRelu, at);
  add("fc8", "classifier.6", Kind::kLinear, {1000, 1, 1});
  return layers;
}

}  // namespace vgg19
