// SPDX-License-Identifier: Apache-2.0
// VGG-19's forward pass with one of five convolutions, each buffer named for vramscope's report:
//
//   vramscope run -- example_vgg19 --algorithm fft --batch 8
#include <vramscope/annotate.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "files.h"
#include "layers.h"
#include "network.h"
#include "options.h"
#include "reference.h"

namespace {

// The largest error of a layer's output, as a share of its largest value. Sums of up to 25088
// float32 products in any order stay below 1e-5; a wrong index does not.
constexpr double kTolerance = 1e-4;

// Compares a forward pass with the CPU, which goes its own way from the pictures to the end.
class Checker {
 public:
  Checker(const vgg19::Weights& weights, const std::vector<float>& pictures, int batch)
      : weights_(weights), at_(pictures), batch_(batch) {}

  void Check(const vgg19::Layer& layer, const std::vector<float>& output) {
    const auto parameter = [&](const char* kind) {
      const auto found = weights_.find(layer.parameter + kind);
      return found == weights_.end() ? nullptr : found->second.data();
    };
    at_ = vgg19::Reference(layer, batch_, at_, parameter(".weight"), parameter(".bias"));
    const double error = vgg19::LargestError(output, at_);
    std::printf("check %-8s %.1e%s\n", layer.name.c_str(), error,
                error <= kTolerance ? "" : "  too large");
    worst_ = std::max(worst_, error);
  }

  bool Passed() const {
    std::printf("check: largest error %.1e of a layer's largest value, %.0e allowed\n", worst_,
                kTolerance);
    return worst_ <= kTolerance;
  }

 private:
  const vgg19::Weights& weights_;
  std::vector<float> at_;
  int batch_;
  double worst_ = 0;
};

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool Run(const vgg19::Options& options) {
  const std::vector<vgg19::Layer> layers = vgg19::Vgg19(options.size);
  const vgg19::Weights weights = options.weights.empty()
                                     ? vgg19::RandomWeights(layers)
                                     : vgg19::ReadWeights(options.weights, layers);
  const std::vector<float> pictures =
      options.image.empty() ? vgg19::RandomPictures(options.batch, options.size)
                            : vgg19::ReadPictures(options.image, options.batch, options.size);

  vgg19::Network network(options, layers, weights);
  Checker checker(weights, pictures, options.batch);
  int pass = 0;
  vgg19::Network::Observer observer;
  if (options.check || options.hold_seconds > 0) {
    observer = [&](const vgg19::Layer& layer, const std::vector<float>& output) {
      if (options.check && pass == 0) {
        checker.Check(layer, output);
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(options.hold_seconds));
    };
  }

  std::vector<float> logits;
  double pass_seconds = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (; pass < options.repeat || SecondsSince(begin) < options.seconds; ++pass) {
    vramscope::Mark("iteration");
    const auto pass_begin = std::chrono::steady_clock::now();
    logits = network.Forward(pictures, observer);
    pass_seconds = SecondsSince(pass_begin);
  }
  vramscope::Mark("end");

  const size_t classes = layers.back().output.elements();
  const auto best = std::max_element(logits.begin(), logits.begin() + static_cast<long>(classes));
  std::printf("%s, batch %d: class %ld of the first picture, last pass %.1f ms\n",
              options.algorithm.c_str(), options.batch, static_cast<long>(best - logits.begin()),
              pass_seconds * 1e3);
  if (!options.output.empty()) {
    vgg19::WriteNpy(options.output, logits, classes);
  }
  return !options.check || checker.Passed();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(vgg19::ParseOptions(argc, argv)) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vgg19: %s\n", error.what());
    return 2;
  }
}
