// SPDX-License-Identifier: Apache-2.0
// cuDNN chooses a kernel and says how much workspace that one needs.
#include <cudnn.h>

#include <set>

#include "convolution.h"
#include "device.h"

namespace vgg19 {

namespace {

#define CUDNN_CHECK(call)                                                \
  do {                                                                   \
    const cudnnStatus_t status_ = (call);                                \
    if (status_ != CUDNN_STATUS_SUCCESS) {                               \
      FailCall(#call, cudnnGetErrorString(status_), __FILE__, __LINE__); \
    }                                                                    \
  } while (false)

const char* NameOf(cudnnConvolutionFwdAlgo_t algorithm) {
  switch (algorithm) {
    case CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM:
      return "implicit GEMM";
    case CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM:
      return "implicit GEMM with indices computed before";
    case CUDNN_CONVOLUTION_FWD_ALGO_GEMM:
      return "GEMM";
    case CUDNN_CONVOLUTION_FWD_ALGO_DIRECT:
      return "direct";
    case CUDNN_CONVOLUTION_FWD_ALGO_FFT:
      return "FFT";
    case CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING:
      return "FFT by tiles";
    case CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD:
      return "Winograd";
    case CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED:
      return "Winograd, in several kernels";
    default:
      return "one without a name here";
  }
}

class CudnnConvolution : public Convolution {
 public:
  CudnnConvolution() {
    CUDNN_CHECK(cudnnCreate(&handle_));
    CUDNN_CHECK(cudnnCreateTensorDescriptor(&input_));
    CUDNN_CHECK(cudnnCreateTensorDescriptor(&output_));
    CUDNN_CHECK(cudnnCreateFilterDescriptor(&filter_));
    CUDNN_CHECK(cudnnCreateConvolutionDescriptor(&convolution_));
    CUDNN_CHECK(cudnnSetConvolution2dDescriptor(convolution_, 1, 1, 1, 1, 1, 1,
                                                CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    // float32 throughout: TF32 has 10 bits of mantissa, and the comparison could show nothing.
    CUDNN_CHECK(cudnnSetConvolutionMathType(convolution_, CUDNN_FMA_MATH));
  }
  ~CudnnConvolution() override {
    cudnnDestroyConvolutionDescriptor(convolution_);
    cudnnDestroyFilterDescriptor(filter_);
    cudnnDestroyTensorDescriptor(output_);
    cudnnDestroyTensorDescriptor(input_);
    cudnnDestroy(handle_);
  }

  void Forward(const Layer& layer,
               int batch,
               const float* input,
               const float* weight,
               float* output) override {
    const Shape& in = layer.input;
    const Shape& out = layer.output;
    CUDNN_CHECK(cudnnSetTensor4dDescriptor(input_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, batch,
                                           in.channels, in.height, in.width));
    CUDNN_CHECK(cudnnSetTensor4dDescriptor(output_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, batch,
                                           out.channels, out.height, out.width));
    CUDNN_CHECK(cudnnSetFilter4dDescriptor(filter_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
                                           out.channels, in.channels, 3, 3));

    // The fastest by cuDNN's own estimate, whatever memory it takes. The list also has kernels that
    // this mathematics rules out: these say so when they are asked.
    cudnnConvolutionFwdAlgoPerf_t choices[CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
    int found = 0;
    CUDNN_CHECK(cudnnGetConvolutionForwardAlgorithm_v7(handle_, input_, filter_, convolution_,
                                                       output_, CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
                                                       &found, choices));
    cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < found && status != CUDNN_STATUS_SUCCESS; ++i) {
      const cudnnConvolutionFwdAlgo_t algorithm = choices[i].algo;
      size_t bytes = 0;
      status = choices[i].status;
      if (status == CUDNN_STATUS_SUCCESS) {
        status = cudnnGetConvolutionForwardWorkspaceSize(handle_, input_, filter_, convolution_,
                                                         output_, algorithm, &bytes);
      }
      if (status == CUDNN_STATUS_SUCCESS) {
        const Buffer<char> workspace(layer.name + "/workspace", bytes);
        const float one = 1;
        const float zero = 0;
        status =
            cudnnConvolutionForward(handle_, &one, input_, input, filter_, weight, convolution_,
                                    algorithm, workspace.get(), bytes, &zero, output_, output);
        if (status == CUDNN_STATUS_SUCCESS && told_.insert(layer.name).second) {
          std::printf("cudnn %-8s workspace %zu bytes, %s\n", layer.name.c_str(), bytes,
                      NameOf(algorithm));
        }
      }
    }
    CUDNN_CHECK(status);
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  cudnnTensorDescriptor_t input_ = nullptr;
  cudnnTensorDescriptor_t output_ = nullptr;
  cudnnFilterDescriptor_t filter_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
  std::set<std::string> told_;  // layers whose choice was printed
};

}  // namespace

std::unique_ptr<Convolution> MakeCudnnConvolution() {
  return std::make_unique<CudnnConvolution>();
}

}  // namespace vgg19
