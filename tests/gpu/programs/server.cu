// SPDX-License-Identifier: Apache-2.0
// A server without Python: the main thread waits for a worker, which answers requests for some
// seconds. Each takes 32 MiB, fills them and gives them back; 256 MiB stay.
//
//   gpu_server SECONDS
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kKeptBytes = 256 * kMiB;
constexpr size_t kRequestBytes = 32 * kMiB;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess)
    return;
  std::fprintf(stderr, "gpu_server: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

__global__ void Fill(unsigned* values, size_t count, unsigned with) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x)
    values[i] = with + static_cast<unsigned>(i);
}

bool AnswerRequest(unsigned number) {
  unsigned* values = nullptr;
  Check(cudaMalloc(&values, kRequestBytes), "cudaMalloc");
  constexpr size_t kCount = kRequestBytes / sizeof(unsigned);
  Fill<<<64, 256>>>(values, kCount, number);
  unsigned last = 0;
  Check(cudaMemcpy(&last, values + kCount - 1, sizeof last, cudaMemcpyDeviceToHost), "cudaMemcpy");
  Check(cudaFree(values), "cudaFree");
  return last == number + static_cast<unsigned>(kCount - 1);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  void* kept = nullptr;
  Check(cudaMalloc(&kept, kKeptBytes), "cudaMalloc");
  bool right = AnswerRequest(0);
  std::puts("ready");
  std::fflush(stdout);
  std::thread worker([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (unsigned number = 1; std::chrono::steady_clock::now() < end; ++number) {
      right = AnswerRequest(number) && right;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  worker.join();
  Check(cudaFree(kept), "cudaFree");
  std::puts(right ? "right" : "wrong");
  return right ? 0 : 1;
}
