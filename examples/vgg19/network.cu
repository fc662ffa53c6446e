// SPDX-License-Identifier: Apache-2.0
#include "network.h"
#include "operations.h"

namespace vgg19 {

namespace {

// What NVIDIA recommends for Hopper, and more than enough for others. Without it cuBLAS allocates
// its own: the report shows that as cuBLAS's.
constexpr size_t kBlasWorkspaceBytes = size_t{32} << 20;

std::unique_ptr<Convolution> MakeConvolution(const Options& options, cublasHandle_t blas) {
  if (options.algorithm == "direct") {
    return MakeDirectConvolution();
  }
  if (options.algorithm == "im2col") {
    return MakeIm2colConvolution(blas);
  }
  if (options.algorithm == "fft") {
    return MakeFftConvolution(options.fft_exact_size, options.fft_automatic_workspace);
  }
  if (options.algorithm == "winograd") {
    return MakeWinogradConvolution(blas);
  }
  return MakeCudnnConvolution();
}

bool WorksInPlace(const Layer& layer) {
  return layer.kind == Kind::kRelu;
}

}  // namespace

Network::Network(const Options& options, const std::vector<Layer>& layers, const Weights& weights)
    : options_(options), layers_(layers), weights_(weights) {
  VRAMSCOPE_SCOPE("libraries");
  CUBLAS_CHECK(cublasCreate(&blas_));
  // float32 throughout, as in conv_cudnn.cu.
  CUBLAS_CHECK(cublasSetMathMode(blas_, CUBLAS_PEDANTIC_MATH));
  blas_workspace_ = Buffer<char>("cublas/workspace", kBlasWorkspaceBytes);
  CUBLAS_CHECK(cublasSetWorkspace(blas_, blas_workspace_.get(), blas_workspace_.bytes()));
  convolution_ = MakeConvolution(options, blas_);
  if (options.resident) {
    for (const Layer& layer : layers_) {
      if (!layer.parameter.empty()) {
        const vramscope::Scope scope(layer.name.c_str());
        resident_[layer.name + "/weight"] =
            Buffer<float>(layer.name + "/weight", weights.at(layer.parameter + ".weight"));
        resident_[layer.name + "/bias"] =
            Buffer<float>(layer.name + "/bias", weights.at(layer.parameter + ".bias"));
      }
    }
  }
}

Network::~Network() {
  cublasDestroy(blas_);
}

std::vector<float> Network::Forward(const std::vector<float>& pictures, const Observer& observer) {
  return options_.resident ? ForwardResident(pictures, observer)
                           : ForwardLayerByLayer(pictures, observer);
}

std::vector<float> Network::ForwardLayerByLayer(const std::vector<float>& pictures,
                                                const Observer& observer) {
  std::vector<float> at = pictures;
  for (const Layer& layer : layers_) {
    const vramscope::Scope scope(layer.name.c_str());
    const Buffer<float> input(layer.name + "/input", at);
    Buffer<float> weight;
    Buffer<float> bias;
    if (!layer.parameter.empty()) {
      weight = Buffer<float>(layer.name + "/weight", weights_.at(layer.parameter + ".weight"));
      bias = Buffer<float>(layer.name + "/bias", weights_.at(layer.parameter + ".bias"));
    }
    Buffer<float> output;
    if (!WorksInPlace(layer)) {
      output = Buffer<float>(layer.name + "/output", options_.batch * layer.output.elements());
    }
    const Buffer<float>& result = WorksInPlace(layer) ? input : output;
    Run(layer, input.get(), weight.get(), bias.get(), result.get());
    at = result.Copy();
    if (observer) {
      observer(layer, at);
    }
  }
  return at;
}

std::vector<float> Network::ForwardResident(const std::vector<float>& pictures,
                                            const Observer& observer) {
  Buffer<float> at(layers_.front().name + "/input", pictures);
  for (const Layer& layer : layers_) {
    const vramscope::Scope scope(layer.name.c_str());
    const float* const weight = resident_[layer.name + "/weight"].get();
    const float* const bias = resident_[layer.name + "/bias"].get();
    if (WorksInPlace(layer)) {
      Run(layer, at.get(), weight, bias, at.get());
    } else {
      Buffer<float> output(layer.name + "/output", options_.batch * layer.output.elements());
      Run(layer, at.get(), weight, bias, output.get());
      at = std::move(output);
    }
    if (observer) {
      observer(layer, at.Copy());
    }
  }
  return at.Copy();
}

void Network::Run(const Layer& layer,
                  const float* input,
                  const float* weight,
                  const float* bias,
                  float* output) {
  const int batch = options_.batch;
  switch (layer.kind) {
    case Kind::kConvolution:
      convolution_->Forward(layer, batch, input, weight, output);
      AddBias(layer.output, batch, bias, output);
      break;
    case Kind::kLinear:
      Multiply(blas_, layer, batch, input, weight, output);
      AddBias(layer.output, batch, bias, output);
      break;
    case Kind::kRelu:
      Relu(batch * layer.output.elements(), output);
      break;
    case Kind::kMaxPool:
      MaxPool(layer, batch, input, output);
      break;
    case Kind::kAveragePool:
      AveragePool(layer, batch, input, output);
      break;
  }
}

}  // namespace vgg19
