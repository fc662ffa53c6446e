// SPDX-License-Identifier: Apache-2.0
// The forward pass, in two ways of having memory.
#pragma once

#include <cublas_v2.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "convolution.h"
#include "device.h"
#include "files.h"
#include "layers.h"

namespace vgg19 {

class Network {
 public:
  // Gets what each layer made, on the host.
  using Observer = std::function<void(const Layer&, const std::vector<float>& output)>;

  // `weights` must outlive the network.
  Network(const Options& options, const std::vector<Layer>& layers, const Weights& weights);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // The logits of `pictures`. `observer` may be empty.
  std::vector<float> Forward(const std::vector<float>& pictures, const Observer& observer);

 private:
  // The old way: each layer copies its input and parameters in, computes, copies its output out and
  // frees everything. The device never has more than one layer, and waits for the copies.
  std::vector<float> ForwardLayerByLayer(const std::vector<float>& pictures,
                                         const Observer& observer);
  // Parameters are there from the start; a layer's output is the next one's input where it lies.
  std::vector<float> ForwardResident(const std::vector<float>& pictures, const Observer& observer);
  // `output` is `input` where the layer works in place.
  void Run(const Layer& layer,
           const float* input,
           const float* weight,
           const float* bias,
           float* output);

  const Options options_;
  const std::vector<Layer> layers_;
  const Weights& weights_;
  cublasHandle_t blas_ = nullptr;
  Buffer<char> blas_workspace_;
  std::unique_ptr<Convolution> convolution_;
  std::map<std::string, Buffer<float>> resident_;
};

}  // namespace vgg19
