// SPDX-License-Identifier: Apache-2.0
// The definition: nine products for each input channel. A copy of the input with a rim of zeros
// spares the kernel its tests for the edges, and is all the memory it takes.
#include "convolution.h"
#include "device.h"

namespace vgg19 {

namespace {

constexpr int kThreads = 128;
constexpr int kOutputs = 4;    // channels of each thread
constexpr int kChannels = 16;  // whose weights are in shared memory at once

// padded: planes x (height + 2) x (width + 2)
__global__ void Pad(const float* input, size_t count, int height, int width, float* padded) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) {
    return;
  }
  const int x = static_cast<int>(i % (width + 2)) - 1;
  const int y = static_cast<int>(i / (width + 2) % (height + 2)) - 1;
  const size_t plane = i / (width + 2) / (height + 2);
  const bool inside = x >= 0 && x < width && y >= 0 && y < height;
  padded[i] = inside ? input[(plane * height + y) * width + x] : 0.0f;
}

// A block has kThreads pixels (blockIdx.x) of kOutputs channels (blockIdx.y) of one picture
// (blockIdx.z).
__global__ void Convolve(const float* padded,
                         const float* weight,
                         int channels,
                         int outputs,
                         int height,
                         int width,
                         float* output) {
  __shared__ float filters[kOutputs][kChannels * 9];
  const int pixels = height * width;
  const int pixel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int first_output = static_cast<int>(blockIdx.y) * kOutputs;
  const size_t picture = blockIdx.z;
  const size_t padded_plane = static_cast<size_t>(height + 2) * (width + 2);
  // Threads behind the last pixel work on the last one, and write nothing: all must meet below.
  const int mine = min(pixel, pixels - 1);
  const float* from = padded + picture * channels * padded_plane +
                      static_cast<size_t>(mine / width) * (width + 2) + mine % width;

  float sums[kOutputs] = {};
  for (int first = 0; first < channels; first += kChannels) {
    const int now = min(kChannels, channels - first);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kOutputs * now * 9; i += kThreads) {
      const int o = i / (now * 9);
      const size_t filter = static_cast<size_t>(first_output + o) * channels + first;
      filters[o][i % (now * 9)] =
          first_output + o < outputs ? weight[filter * 9 + i % (now * 9)] : 0;
    }
    __syncthreads();
    for (int c = 0; c < now; ++c, from += padded_plane) {
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {
        const float value = from[static_cast<size_t>(tap / 3) * (width + 2) + tap % 3];
#pragma unroll
        for (int o = 0; o < kOutputs; ++o) {
          sums[o] += value * filters[o][c * 9 + tap];
        }
      }
    }
  }
  for (int o = 0; o < kOutputs; ++o) {
    if (pixel < pixels && first_output + o < outputs) {
      output[(picture * outputs + first_output + o) * pixels + pixel] = sums[o];
    }
  }
}

class DirectConvolution : public Convolution {
 public:
  void Forward(const Layer& layer,
               int batch,
               const float* input,
               const float* weight,
               float* output) override {
    const Shape& in = layer.input;
    const int outputs = layer.output.channels;
    const size_t count =
        static_cast<size_t>(batch) * in.channels * (in.height + 2) * (in.width + 2);
    const Buffer<float> padded(layer.name + "/padded", count);
    Pad<<<Blocks(count, kThreads), kThreads>>>(input, count, in.height, in.width, padded.get());
    CUDA_CHECK(cudaGetLastError());
    const dim3 grid(Blocks(static_cast<size_t>(in.height) * in.width, kThreads),
                    Blocks(outputs, kOutputs), batch);
    Convolve<<<grid, kThreads>>>(padded.get(), weight, in.channels, outputs, in.height, in.width,
                                 output);
    CUDA_CHECK(cudaGetLastError());
  }
};

}  // namespace

std::unique_ptr<Convolution> MakeDirectConvolution() {
  return std::make_unique<DirectConvolution>();
}

}  // namespace vgg19
