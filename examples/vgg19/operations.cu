// SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "operations.h"
#include "transforms.h"

namespace vgg19 {

namespace {

constexpr int kThreads = 256;

__global__ void AddBiasKernel(size_t count,
                              size_t plane,
                              int channels,
                              const float* bias,
                              float* output) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) {
    output[i] += bias[i / plane % channels];
  }
}

__global__ void ReluKernel(size_t count, float* values) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count && values[i] < 0) {
    values[i] = 0;
  }
}

__global__ void MaxPoolKernel(const float* input,
                              size_t count,
                              Shape in,
                              Shape out,
                              float* output) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) {
    return;
  }
  const size_t x = i % out.width;
  const size_t y = i / out.width % out.height;
  const size_t plane = i / out.width / out.height;
  const float* const from = input + (plane * in.height + 2 * y) * in.width + 2 * x;
  output[i] = fmaxf(fmaxf(from[0], from[1]), fmaxf(from[in.width], from[in.width + 1]));
}

__global__ void AveragePoolKernel(const float* input,
                                  size_t count,
                                  Shape in,
                                  Shape out,
                                  float* output) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) {
    return;
  }
  const int x = static_cast<int>(i % out.width);
  const int y = static_cast<int>(i / out.width % out.height);
  const float* const from = input + i / out.width / out.height * in.height * in.width;
  const int top = AdaptiveFirst(y, in.height, out.height);
  const int bottom = AdaptiveEnd(y, in.height, out.height);
  const int left = AdaptiveFirst(x, in.width, out.width);
  const int right = AdaptiveEnd(x, in.width, out.width);
  float sum = 0;
  for (int row = top; row < bottom; ++row) {
    for (int column = left; column < right; ++column) {
      sum += from[static_cast<size_t>(row) * in.width + column];
    }
  }
  output[i] = sum / static_cast<float>((bottom - top) * (right - left));
}

}  // namespace

void AddBias(const Shape& shape, int batch, const float* bias, float* output) {
  const size_t count = batch * shape.elements();
  const size_t plane = static_cast<size_t>(shape.height) * shape.width;
  AddBiasKernel<<<Blocks(count, kThreads), kThreads>>>(count, plane, shape.channels, bias, output);
  CUDA_CHECK(cudaGetLastError());
}

void Relu(size_t count, float* values) {
  ReluKernel<<<Blocks(count, kThreads), kThreads>>>(count, values);
  CUDA_CHECK(cudaGetLastError());
}

void MaxPool(const Layer& layer, int batch, const float* input, float* output) {
  const size_t count = batch * layer.output.elements();
  MaxPoolKernel<<<Blocks(count, kThreads), kThreads>>>(input, count, layer.input, layer.output,
                                                       output);
  CUDA_CHECK(cudaGetLastError());
}

void AveragePool(const Layer& layer, int batch, const float* input, float* output) {
  const size_t count = batch * layer.output.elements();
  AveragePoolKernel<<<Blocks(count, kThreads), kThreads>>>(input, count, layer.input, layer.output,
                                                           output);
  CUDA_CHECK(cudaGetLastError());
}

void Multiply(cublasHandle_t blas,
              const Layer& layer,
              int batch,
              const float* input,
              const float* weight,
              float* output) {
  // Row by row: output (batch x outputs) = input (batch x inputs) * weight' (inputs x outputs). For
  // cuBLAS, which reads column by column: output' = weight * input'.
  const int inputs = static_cast<int>(layer.input.elements());
  const int outputs = static_cast<int>(layer.output.elements());
  const float one = 1;
  const float zero = 0;
  CUBLAS_CHECK(cublasSgemm(blas, CUBLAS_OP_T, CUBLAS_OP_N, outputs, batch, inputs, &one, weight,
                           inputs, input, inputs, &zero, output, outputs));
}

}  // namespace vgg19
