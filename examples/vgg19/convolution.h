// SPDX-License-Identifier: Apache-2.0
// The one interface of the five algorithms, each in a file of its own.
#pragma once

#include <cublas_v2.h>

#include <memory>
#include <string>

#include "layers.h"
#include "options.h"

namespace vgg19 {

// 3 x 3, stride 1, a rim of zeros: all that VGG-19 has. Pictures are N x C x H x W, weights
// O x C x 3 x 3, all float32 in device memory.
class Convolution {
 public:
  virtual ~Convolution() = default;
  // Without the bias. What it needs on the way is named `layer.name`/role and freed before it
  // returns.
  virtual void Forward(const Layer& layer,
                       int batch,
                       const float* input,
                       const float* weight,
                       float* output) = 0;
};

std::unique_ptr<Convolution> MakeCudnnConvolution();
std::unique_ptr<Convolution> MakeDirectConvolution();
std::unique_ptr<Convolution> MakeIm2colConvolution(cublasHandle_t blas);
std::unique_ptr<Convolution> MakeFftConvolution(bool exact_size, bool automatic_workspace);
std::unique_ptr<Convolution> MakeWinogradConvolution(cublasHandle_t blas);

}  // namespace vgg19
