// SPDX-License-Identifier: Apache-2.0
// Heat on a square plate, solved by Jacobi iteration with the CUDA runtime API: two grids and a
// source from cudaMalloc, a scratch buffer from the stream-ordered pool for each residual.
//
//   vramscope run -- build/bin/example_cuda_runtime_static
#include <cuda_runtime.h>
#include <vramscope/annotate.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {

#define CHECK(call)                                                                      \
  do {                                                                                   \
    const cudaError_t error = (call);                                                    \
    if (error != cudaSuccess) {                                                          \
      std::fprintf(stderr, "jacobi: %s failed: %s\n", #call, cudaGetErrorString(error)); \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (false)

constexpr int kTile = 16;
constexpr int kReduceThreads = 256;

// One sweep over the inner points of an n x n grid; the rim keeps its temperature.
__global__ void Sweep(const float* from, float* to, const float* source, int n) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) + 1;
  const int row = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y) + 1;
  if (column >= n - 1 || row >= n - 1) {
    return;
  }
  const size_t at = static_cast<size_t>(row) * n + column;
  to[at] = 0.25f * (from[at - 1] + from[at + 1] + from[at - n] + from[at + n] + source[at]);
}

// The largest change of each block's share of points.
__global__ void LargestChange(const float* a, const float* b, size_t count, float* block_largest) {
  __shared__ float shared[kReduceThreads];
  float largest = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    largest = fmaxf(largest, fabsf(a[i] - b[i]));
  }
  shared[threadIdx.x] = largest;
  __syncthreads();
  for (unsigned width = kReduceThreads / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) {
      shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + width]);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    block_largest[blockIdx.x] = shared[0];
  }
}

float MeasureChange(const float* a, const float* b, size_t count, cudaStream_t stream) {
  constexpr int kBlocks = 512;
  float* scratch = nullptr;
  CHECK(cudaMallocAsync(&scratch, kBlocks * sizeof(float), stream));
  LargestChange<<<kBlocks, kReduceThreads, 0, stream>>>(a, b, count, scratch);
  CHECK(cudaGetLastError());
  std::vector<float> partial(kBlocks);
  CHECK(cudaMemcpyAsync(partial.data(), scratch, kBlocks * sizeof(float), cudaMemcpyDeviceToHost,
                        stream));
  CHECK(cudaFreeAsync(scratch, stream));
  CHECK(cudaStreamSynchronize(stream));
  float largest = 0;
  for (float value : partial) {
    largest = std::fmax(largest, value);
  }
  return largest;
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 4096;
  const int sweeps = argc > 2 ? std::atoi(argv[2]) : 20000;
  if (n < 3 || sweeps < 1) {
    std::fprintf(stderr, "usage: %s [GRID_SIDE [SWEEPS]]\n", argv[0]);
    return 2;
  }
  const size_t count = static_cast<size_t>(n) * n;
  const size_t bytes = count * sizeof(float);

  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  float* from = nullptr;
  float* to = nullptr;
  float* source = nullptr;
  CHECK(cudaMalloc(&from, bytes));
  CHECK(cudaMalloc(&to, bytes));
  CHECK(cudaMalloc(&source, bytes));
  CHECK(cudaMemsetAsync(from, 0, bytes, stream));
  CHECK(cudaMemsetAsync(to, 0, bytes, stream));
  CHECK(cudaMemsetAsync(source, 0, bytes, stream));

  // A hot point in the middle of the plate.
  const float heat = 1000.0f;
  const size_t middle = static_cast<size_t>(n / 2) * n + n / 2;
  CHECK(cudaMemcpyAsync(source + middle, &heat, sizeof(heat), cudaMemcpyHostToDevice, stream));
  vramscope_annotate_mark("grid ready");

  const dim3 threads(kTile, kTile);
  const dim3 blocks((n - 2 + kTile - 1) / kTile, (n - 2 + kTile - 1) / kTile);
  float change = 0;
  for (int sweep = 1; sweep <= sweeps; ++sweep) {
    Sweep<<<blocks, threads, 0, stream>>>(from, to, source, n);
    CHECK(cudaGetLastError());
    std::swap(from, to);
    if (sweep % 1000 == 0 || sweep == sweeps) {
      change = MeasureChange(from, to, count, stream);
      std::printf("sweep %6d  largest change %.6f\n", sweep, change);
    }
  }
  vramscope_annotate_mark("solved");

  float hottest = 0;
  CHECK(cudaMemcpy(&hottest, from + middle, sizeof(hottest), cudaMemcpyDeviceToHost));
  std::printf("hottest point %.2f\n", hottest);
  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
  CHECK(cudaFree(source));
  CHECK(cudaStreamDestroy(stream));
  // A point source heats its surroundings. Any other result is wrong.
  return hottest > heat / 4 && std::isfinite(change) ? 0 : 1;
}
