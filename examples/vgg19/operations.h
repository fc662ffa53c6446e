// SPDX-License-Identifier: Apache-2.0
// Shared by the five variants: every layer except convolutions. All pointers are to the device.
#pragma once

#include <cublas_v2.h>

#include "layers.h"

namespace vgg19 {

// output[picture][channel][...] += bias[channel]
void AddBias(const Shape& shape, int batch, const float* bias, float* output);
void Relu(size_t count, float* values);
void MaxPool(const Layer& layer, int batch, const float* input, float* output);
void AveragePool(const Layer& layer, int batch, const float* input, float* output);
// Without the bias.
void Multiply(cublasHandle_t blas,
              const Layer& layer,
              int batch,
              const float* input,
              const float* weight,
              float* output);

}  // namespace vgg19
