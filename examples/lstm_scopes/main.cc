// SPDX-License-Identifier: Apache-2.0
// Trains a small LSTM, built from a description whose names travel to vramscope's report:
//
//   vramscope run -- build/bin/example_lstm_scopes
#include <vramscope/annotate.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "driver.h"
#include "kernels.h"
#include "lstm.h"
#include "pool.h"

namespace {

constexpr char kDescription[] =
    "lstm l0 inputs=96 units=192\n"
    "lstm l1 inputs=192 units=128\n";
constexpr unsigned kBatch = 64;
constexpr size_t kSteps = 12;

struct Options {
  int iterations = 30;
  bool verify = true;
  std::string description = kDescription;
};

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--no-verify") == 0) {
      options.verify = false;
    } else if (std::strcmp(argv[i], "--iterations") == 0 && i + 1 < argc) {
      options.iterations = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--model") == 0 && i + 1 < argc) {
      options.description = argv[++i];
    } else {
      std::fprintf(
          stderr,
          "usage: %s [--iterations N] [--no-verify]\n"
          "          [--model \"lstm NAME inputs=N units=N\" with a line for each layer]\n",
          argv[0]);
      std::exit(2);
    }
  }
  return options;
}

// Half the mean square of what is in `difference`.
double Loss(const driver::Api& cu, const Buffer& difference, unsigned count) {
  std::vector<float> host(count);
  driver::Check(cu.MemcpyDtoH(host.data(), difference.get(), count * sizeof(float)),
                "cuMemcpyDtoH");
  double sum = 0;
  for (const float value : host)
    sum += 0.5 * value * value;
  return sum / count;
}

bool Train(const driver::Api& cu, const Options& options) {
  const std::vector<LayerDescription> layers = ParseDescription(options.description);
  const Kernels kernels(cu);
  Pool pool(cu);
  Lstm model(layers, kBatch, kernels, pool);

  std::vector<Buffer> sequence;
  Buffer target;
  {
    VRAMSCOPE_SCOPE("input");
    for (size_t t = 0; t < kSteps; ++t) {
      const unsigned count = kBatch * layers.front().inputs;
      sequence.emplace_back(pool, count, "input/t" + std::to_string(t));
      kernels.Fill(sequence.back().get(), count, 0.0f, 1.0f, static_cast<unsigned>(t));
    }
    target = Buffer(pool, model.output_count(), "input/target");
    kernels.Fill(target.get(), model.output_count(), 0.0f, 0.5f, 77);
  }

  double first = 0, last = 0;
  for (int iteration = 0; iteration < options.iterations; ++iteration) {
    vramscope_annotate_mark("iteration");
    model.Forward(sequence);
    Buffer gradient;
    {
      VRAMSCOPE_SCOPE("loss");
      gradient = Buffer(pool, model.output_count(), "loss/gradient");
      kernels.Difference(gradient.get(), model.output().get(), target.get(), model.output_count(),
                         1.0f);
    }
    last = Loss(cu, gradient, model.output_count());
    if (iteration == 0)
      first = last;
    model.Backward(sequence, gradient);
    model.Optimize(1.0f / kBatch);
  }
  driver::Check(cu.CtxSynchronize(), "cuCtxSynchronize");
  vramscope_annotate_mark("trained");
  std::printf("loss %.5f after the first iteration, %.5f after %d\n", first, last,
              options.iterations);
  if (options.verify && !(last < first / 2)) {
    std::fprintf(stderr, "example_lstm_scopes: the loss has not halved\n");
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  const driver::Api& cu = driver::Load();
  driver::Check(cu.Init(0), "cuInit");
  driver::Device device = 0;
  driver::Check(cu.DeviceGet(&device, 0), "cuDeviceGet");
  driver::Context context = nullptr;
  driver::Check(cu.PrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  driver::Check(cu.CtxSetCurrent(context), "cuCtxSetCurrent");
  const bool right = Train(cu, options);
  driver::Check(cu.PrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  return right ? 0 : 1;
}
