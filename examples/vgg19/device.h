// SPDX-License-Identifier: Apache-2.0
// Device memory with a name, and calls that must succeed. Everything runs on the default stream.
#pragma once

#include <cuda_runtime_api.h>
#include <vramscope/annotate.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace vgg19 {

[[noreturn]] inline void FailCall(const char* call, const char* error, const char* file, int line) {
  std::fprintf(stderr, "vgg19: %s:%d: %s failed: %s\n", file, line, call, error);
  std::exit(1);
}

#define CUDA_CHECK(call)                                                         \
  do {                                                                           \
    const cudaError_t status_ = (call);                                          \
    if (status_ != cudaSuccess) {                                                \
      ::vgg19::FailCall(#call, cudaGetErrorString(status_), __FILE__, __LINE__); \
    }                                                                            \
  } while (false)

#define CUBLAS_CHECK(call)                                                          \
  do {                                                                              \
    const cublasStatus_t status_ = (call);                                          \
    if (status_ != CUBLAS_STATUS_SUCCESS) {                                         \
      ::vgg19::FailCall(#call, cublasGetStatusString(status_), __FILE__, __LINE__); \
    }                                                                               \
  } while (false)

// `count` values of T on the device. The name is what the report shows (`--by tag`): layer/role.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(const std::string& name, size_t count) : count_(count) {
    if (count == 0) {
      return;
    }
    const cudaError_t status = cudaMalloc(reinterpret_cast<void**>(&data_), bytes());
    if (status != cudaSuccess) {
      std::fprintf(stderr, "vgg19: no %zu bytes for %s: %s\n", bytes(), name.c_str(),
                   cudaGetErrorString(status));
      std::exit(1);
    }
    vramscope::Tag(data_, name.c_str(), bytes());
  }
  Buffer(const std::string& name, const std::vector<T>& values) : Buffer(name, values.size()) {
    CUDA_CHECK(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  ~Buffer() { Free(); }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    other.Free();
    return *this;
  }

  // Waits, as cudaFree does, for the kernels that use the memory.
  void Free() {
    if (data_ != nullptr) {
      CUDA_CHECK(cudaFree(data_));
    }
    data_ = nullptr;
    count_ = 0;
  }
  std::vector<T> Copy() const {
    std::vector<T> values(count_);
    CUDA_CHECK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }
  T* get() const { return data_; }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

// Blocks of `threads` that cover `count` elements.
inline unsigned Blocks(size_t count, unsigned threads) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

}  // namespace vgg19
