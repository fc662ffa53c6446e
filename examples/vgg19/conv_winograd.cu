// SPDX-License-Identifier: Apache-2.0
// Winograd F(2x2,3x3): each 4 x 4 tile of the input and each filter are transformed to 16 points;
// at each point the sum over the channels is a matrix product; 2 x 2 outputs are transformed back.
#include "convolution.h"
#include "device.h"
#include "transforms.h"

namespace vgg19 {

namespace {

constexpr int kThreads = 128;

// spectrum: point x filter
__global__ void TransformFilters(const float* weight, size_t filters, float* spectrum) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= filters) {
    return;
  }
  float filter[9];
  for (int tap = 0; tap < 9; ++tap) {
    filter[tap] = weight[i * 9 + tap];
  }
  float transformed[kWinogradPoints];
  WinogradFilter(filter, transformed);
  for (int point = 0; point < kWinogradPoints; ++point) {
    spectrum[point * filters + i] = transformed[point];
  }
}

struct Tiles {
  int high;
  int wide;
  int batch;
  __host__ __device__ size_t count() const { return static_cast<size_t>(batch) * high * wide; }
};

// spectrum: point x channel x tile, the tiles of all pictures
__global__ void TransformInput(const float* input, Shape shape, Tiles tiles, float* spectrum) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t points = shape.channels * tiles.count();
  if (i >= points) {
    return;
  }
  const size_t channel = i / tiles.count();
  const size_t tile = i % tiles.count();
  const int left = static_cast<int>(tile % tiles.wide) * kWinogradOutput - 1;
  const int top = static_cast<int>(tile / tiles.wide % tiles.high) * kWinogradOutput - 1;
  const size_t picture = tile / tiles.wide / tiles.high;
  const float* const from =
      input + (picture * shape.channels + channel) * shape.height * shape.width;
  float values[kWinogradPoints];
  for (int point = 0; point < kWinogradPoints; ++point) {
    const int y = top + point / kWinogradTile;
    const int x = left + point % kWinogradTile;
    const bool inside = x >= 0 && x < shape.width && y >= 0 && y < shape.height;
    values[point] = inside ? from[static_cast<size_t>(y) * shape.width + x] : 0.0f;
  }
  float transformed[kWinogradPoints];
  WinogradInput(values, transformed);
  for (int point = 0; point < kWinogradPoints; ++point) {
    spectrum[point * points + i] = transformed[point];
  }
}

// products: point x output channel x tile
__global__ void TransformOutput(const float* products, Shape shape, Tiles tiles, float* output) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t points = shape.channels * tiles.count();
  if (i >= points) {
    return;
  }
  const size_t channel = i / tiles.count();
  const size_t tile = i % tiles.count();
  const int left = static_cast<int>(tile % tiles.wide) * kWinogradOutput;
  const int top = static_cast<int>(tile / tiles.wide % tiles.high) * kWinogradOutput;
  const size_t picture = tile / tiles.wide / tiles.high;
  float values[kWinogradPoints];
  for (int point = 0; point < kWinogradPoints; ++point) {
    values[point] = products[point * points + i];
  }
  float four[kWinogradOutput * kWinogradOutput];
  WinogradOutput(values, four);
  float* const to = output + (picture * shape.channels + channel) * shape.height * shape.width;
  for (int i_four = 0; i_four < kWinogradOutput * kWinogradOutput; ++i_four) {
    const int y = top + i_four / kWinogradOutput;
    const int x = left + i_four % kWinogradOutput;
    if (y < shape.height && x < shape.width) {
      to[static_cast<size_t>(y) * shape.width + x] = four[i_four];
    }
  }
}

class WinogradConvolution : public Convolution {
 public:
  explicit WinogradConvolution(cublasHandle_t blas) : blas_(blas) {}

  void Forward(const Layer& layer,
               int batch,
               const float* input,
               const float* weight,
               float* output) override {
    const Shape& in = layer.input;
    const Shape& out = layer.output;
    const Tiles tiles{(in.height + 1) / kWinogradOutput, (in.width + 1) / kWinogradOutput, batch};
    const size_t filters = static_cast<size_t>(out.channels) * in.channels;
    const size_t inputs = in.channels * tiles.count();
    const size_t outputs = out.channels * tiles.count();

    const Buffer<float> filter_spectrum(layer.name + "/filter spectrum", kWinogradPoints * filters);
    TransformFilters<<<Blocks(filters, kThreads), kThreads>>>(weight, filters,
                                                              filter_spectrum.get());
    CUDA_CHECK(cudaGetLastError());
    const Buffer<float> input_spectrum(layer.name + "/input spectrum", kWinogradPoints * inputs);
    TransformInput<<<Blocks(inputs, kThreads), kThreads>>>(input, in, tiles, input_spectrum.get());
    CUDA_CHECK(cudaGetLastError());

    // Row by row, at each point: products (outputs x tiles) = filters (outputs x channels) * inputs
    // (channels x tiles); for cuBLAS each is transposed.
    const Buffer<float> products(layer.name + "/output spectrum", kWinogradPoints * outputs);
    const int columns = static_cast<int>(tiles.count());
    const float one = 1;
    const float zero = 0;
    CUBLAS_CHECK(cublasSgemmStridedBatched(
        blas_, CUBLAS_OP_N, CUBLAS_OP_N, columns, out.channels, in.channels, &one,
        input_spectrum.get(), columns, static_cast<long long>(inputs), filter_spectrum.get(),
        in.channels, static_cast<long long>(filters), &zero, products.get(), columns,
        static_cast<long long>(outputs), kWinogradPoints));
    TransformOutput<<<Blocks(outputs, kThreads), kThreads>>>(products.get(), out, tiles, output);
    CUDA_CHECK(cudaGetLastError());
  }

 private:
  cublasHandle_t blas_;
};

}  // namespace

std::unique_ptr<Convolution> MakeWinogradConvolution(cublasHandle_t blas) {
  return std::make_unique<WinogradConvolution>(blas);
}

}  // namespace vgg19
