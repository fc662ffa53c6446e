// SPDX-License-Identifier: Apache-2.0
// The forward pass on the CPU only, to compare with PyTorch on a machine without a GPU:
//
//   example_vgg19_reference --size 64 --weights FILE --image FILE.npy --output FILE.npy
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "files.h"
#include "layers.h"
#include "options.h"
#include "reference.h"

namespace {

void Run(const vgg19::Options& options) {
  const std::vector<vgg19::Layer> layers = vgg19::Vgg19(options.size);
  const vgg19::Weights weights = options.weights.empty()
                                     ? vgg19::RandomWeights(layers)
                                     : vgg19::ReadWeights(options.weights, layers);
  std::vector<float> at = options.image.empty()
                              ? vgg19::RandomPictures(options.batch, options.size)
                              : vgg19::ReadPictures(options.image, options.batch, options.size);
  for (const vgg19::Layer& layer : layers) {
    const auto parameter = [&](const char* kind) {
      return layer.parameter.empty() ? nullptr : weights.at(layer.parameter + kind).data();
    };
    at = vgg19::Reference(layer, options.batch, at, parameter(".weight"), parameter(".bias"));
  }
  if (!options.output.empty()) {
    vgg19::WriteNpy(options.output, at, layers.back().output.elements());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Run(vgg19::ParseOptions(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vgg19: %s\n", error.what());
    return 2;
  }
}
