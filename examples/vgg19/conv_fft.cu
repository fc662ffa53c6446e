// SPDX-License-Identifier: Apache-2.0
// Convolution by FFT: pictures and filters, each as large as a whole picture, are transformed; the
// sum over the channels is taken there, point by point; the result is transformed back. A filter of
// 36 bytes takes as much as a picture, and there are inputs x outputs of them: that is why.
#include <cufft.h>

#include <climits>

#include "convolution.h"
#include "device.h"
#include "transforms.h"

namespace vgg19 {

namespace {

#define CUFFT_CHECK(call)                                                   \
  do {                                                                      \
    const cufftResult status_ = (call);                                     \
    if (status_ != CUFFT_SUCCESS) {                                         \
      FailCall(#call, std::to_string(status_).c_str(), __FILE__, __LINE__); \
    }                                                                       \
  } while (false)

constexpr int kThreads = 256;

// Transforms of `planes` pictures of size x size, with the memory they work in.
class Plan {
 public:
  Plan(const std::string& name, cufftType type, int size, size_t planes, bool automatic) {
    if (planes * size * size > INT_MAX) {
      FailCall(name.c_str(), "more than 2^31 values in one transform", __FILE__, __LINE__);
    }
    CUFFT_CHECK(cufftCreate(&plan_));
    // By default the plan allocates its work area itself, inside cufftMakePlanMany: the report
    // shows that as cuFFT's. Without, it only says how much it wants, and the memory is ours to
    // name.
    CUFFT_CHECK(cufftSetAutoAllocation(plan_, automatic ? 1 : 0));
    int sizes[] = {size, size};
    size_t bytes = 0;
    CUFFT_CHECK(cufftMakePlanMany(plan_, 2, sizes, nullptr, 1, 0, nullptr, 1, 0, type,
                                  static_cast<int>(planes), &bytes));
    if (!automatic) {
      workspace_ = Buffer<char>(name + " plan workspace", bytes);
      CUFFT_CHECK(cufftSetWorkArea(plan_, workspace_.get()));
    }
  }
  ~Plan() {
    // The transform may not have run yet; it reads what the plan has on the device.
    CUDA_CHECK(cudaDeviceSynchronize());
    cufftDestroy(plan_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  cufftHandle get() const { return plan_; }

 private:
  cufftHandle plan_ = 0;
  Buffer<char> workspace_;
};

// padded: plane x size x size, with zeros behind the picture
__global__ void PadPictures(const float* input,
                            size_t count,
                            Shape shape,
                            int size,
                            float* padded) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) {
    return;
  }
  const int x = static_cast<int>(i % size);
  const int y = static_cast<int>(i / size % size);
  const size_t plane = i / size / size;
  const bool inside = x < shape.width && y < shape.height;
  padded[i] = inside ? input[(plane * shape.height + y) * shape.width + x] : 0.0f;
}

// padded: filter x size x size, zeros but for nine; memory must be zero already
__global__ void PadFilters(const float* weight, size_t count, int size, float* padded) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) {
    return;
  }
  const int tap = static_cast<int>(i % 9);
  const size_t row = i / 9 * size + FftTap(tap / 3, size);
  padded[row * size + FftTap(tap % 3, size)] = weight[i];
}

// Point blockIdx.x * kThreads + threadIdx.x of output channel blockIdx.y of picture blockIdx.z.
__global__ void SumProducts(const cufftComplex* inputs,
                            const cufftComplex* filters,
                            int channels,
                            int points,
                            cufftComplex* outputs) {
  const int point = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (point >= points) {
    return;
  }
  const size_t output = static_cast<size_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  const cufftComplex* input = inputs + static_cast<size_t>(blockIdx.z) * channels * points + point;
  const cufftComplex* filter =
      filters + static_cast<size_t>(blockIdx.y) * channels * points + point;
  cufftComplex sum{0, 0};
  for (int c = 0; c < channels; ++c, input += points, filter += points) {
    AddProductWithConjugate(*input, *filter, &sum);
  }
  outputs[output * points + point] = sum;
}

// cuFFT's inverse is size * size times too large.
__global__ void CropPictures(const float* padded,
                             size_t count,
                             Shape shape,
                             int size,
                             float* output) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) {
    return;
  }
  const int x = static_cast<int>(i % shape.width);
  const int y = static_cast<int>(i / shape.width % shape.height);
  const size_t plane = i / shape.width / shape.height;
  const float scale = 1.0f / (static_cast<float>(size) * static_cast<float>(size));
  output[i] = padded[(plane * size + y) * size + x] * scale;
}

class FftConvolution : public Convolution {
 public:
  FftConvolution(bool exact_size, bool automatic) : exact_(exact_size), automatic_(automatic) {}

  void Forward(const Layer& layer,
               int batch,
               const float* input,
               const float* weight,
               float* output) override {
    const Shape& in = layer.input;
    const Shape& out = layer.output;
    const int size = exact_ ? in.height + 2 : FftSmooth(FftSmallest(in.height));
    const size_t pixels = static_cast<size_t>(size) * size;
    const size_t points = static_cast<size_t>(size) * (size / 2 + 1);
    const size_t pictures = static_cast<size_t>(batch) * in.channels;
    const size_t filters = static_cast<size_t>(out.channels) * in.channels;
    const size_t results = static_cast<size_t>(batch) * out.channels;

    // Buffers are freed as soon as possible: the peak of a layer is its largest step, not the sum.
    Buffer<float> padded(layer.name + "/input padded", pictures * pixels);
    PadPictures<<<Blocks(pictures * pixels, kThreads), kThreads>>>(input, pictures * pixels, in,
                                                                   size, padded.get());
    CUDA_CHECK(cudaGetLastError());
    Buffer<cufftComplex> input_spectrum =
        Transform(layer.name + "/input", size, pictures, points, padded);
    padded.Free();

    padded = Buffer<float>(layer.name + "/filter padded", filters * pixels);
    CUDA_CHECK(cudaMemset(padded.get(), 0, padded.bytes()));
    PadFilters<<<Blocks(filters * 9, kThreads), kThreads>>>(weight, filters * 9, size,
                                                            padded.get());
    CUDA_CHECK(cudaGetLastError());
    Buffer<cufftComplex> filter_spectrum =
        Transform(layer.name + "/filter", size, filters, points, padded);
    padded.Free();

    const Buffer<cufftComplex> output_spectrum(layer.name + "/output spectrum", results * points);
    const dim3 grid(Blocks(points, kThreads), out.channels, batch);
    SumProducts<<<grid, kThreads>>>(input_spectrum.get(), filter_spectrum.get(), in.channels,
                                    static_cast<int>(points), output_spectrum.get());
    CUDA_CHECK(cudaGetLastError());
    input_spectrum.Free();
    filter_spectrum.Free();

    padded = Buffer<float>(layer.name + "/output padded", results * pixels);
    const Plan plan(layer.name + "/output", CUFFT_C2R, size, results, automatic_);
    CUFFT_CHECK(cufftExecC2R(plan.get(), output_spectrum.get(), padded.get()));
    const size_t count = static_cast<size_t>(batch) * out.elements();
    CropPictures<<<Blocks(count, kThreads), kThreads>>>(padded.get(), count, out, size, output);
    CUDA_CHECK(cudaGetLastError());
  }

 private:
  // Of a real picture half of the points are enough: the others are their conjugates.
  Buffer<cufftComplex> Transform(const std::string& name,
                                 int size,
                                 size_t planes,
                                 size_t points,
                                 const Buffer<float>& padded) const {
    Buffer<cufftComplex> spectrum(name + " spectrum", planes * points);
    const Plan plan(name, CUFFT_R2C, size, planes, automatic_);
    CUFFT_CHECK(cufftExecR2C(plan.get(), padded.get(), spectrum.get()));
    return spectrum;
  }

  bool exact_;
  bool automatic_;
};

}  // namespace

std::unique_ptr<Convolution> MakeFftConvolution(bool exact_size, bool automatic_workspace) {
  return std::make_unique<FftConvolution>(exact_size, automatic_workspace);
}

}  // namespace vgg19
