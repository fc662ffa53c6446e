// SPDX-License-Identifier: Apache-2.0
// Every output pixel's 9 x C inputs as a column of a matrix, nine times the input; then the
// convolution is one matrix product for each picture.
#include "convolution.h"
#include "device.h"

namespace vgg19 {

namespace {

constexpr int kThreads = 256;

// column: picture x channel x tap x pixel
__global__ void FillColumns(const float* input,
                            size_t count,
                            int height,
                            int width,
                            float* column) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) {
    return;
  }
  const size_t pixels = static_cast<size_t>(height) * width;
  const size_t pixel = i % pixels;
  const int tap = static_cast<int>(i / pixels % 9);
  const size_t plane = i / pixels / 9;
  const int y = static_cast<int>(pixel / width) + tap / 3 - 1;
  const int x = static_cast<int>(pixel % width) + tap % 3 - 1;
  const bool inside = x >= 0 && x < width && y >= 0 && y < height;
  column[i] = inside ? input[plane * pixels + static_cast<size_t>(y) * width + x] : 0.0f;
}

class Im2colConvolution : public Convolution {
 public:
  explicit Im2colConvolution(cublasHandle_t blas) : blas_(blas) {}

  void Forward(const Layer& layer,
               int batch,
               const float* input,
               const float* weight,
               float* output) override {
    const Shape& in = layer.input;
    const int pixels = in.height * in.width;
    const int rows = in.channels * 9;
    const int outputs = layer.output.channels;
    const size_t count = static_cast<size_t>(batch) * rows * pixels;
    const Buffer<float> column(layer.name + "/column", count);
    FillColumns<<<Blocks(count, kThreads), kThreads>>>(input, count, in.height, in.width,
                                                       column.get());
    CUDA_CHECK(cudaGetLastError());
    // Row by row: output (outputs x pixels) = weight (outputs x rows) * column (rows x pixels).
    // cuBLAS reads column by column, where the same memory is each matrix transposed.
    const float one = 1;
    const float zero = 0;
    CUBLAS_CHECK(cublasSgemmStridedBatched(
        blas_, CUBLAS_OP_N, CUBLAS_OP_N, pixels, outputs, rows, &one, column.get(), pixels,
        static_cast<long long>(rows) * pixels, weight, rows, 0, &zero, output, pixels,
        static_cast<long long>(outputs) * pixels, batch));
  }

 private:
  cublasHandle_t blas_;
};

}  // namespace

std::unique_ptr<Convolution> MakeIm2colConvolution(cublasHandle_t blas) {
  return std::make_unique<Im2colConvolution>(blas);
}

}  // namespace vgg19
