// SPDX-License-Identifier: Apache-2.0
// One launch of a kernel with 64 KiB of local memory a thread: the context takes that much for
// every thread that the GPU can hold, 16 GiB on an H200, and keeps it.
//
//   gpu_local_memory [--seconds S]
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr int kWords = 64 * 1024 / sizeof(int);

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess)
    return;
  std::fprintf(stderr, "gpu_local_memory: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// The indices come from memory, so that the array cannot live in registers.
__global__ void Walk(const int* steps, int count, int* out) {
  int local[kWords];
  for (int i = 0; i < kWords; ++i)
    local[i] = i;
  int at = 0;
  for (int i = 0; i < count; ++i) {
    at = (at + steps[i]) & (kWords - 1);
    local[at] += i;
  }
  out[threadIdx.x] = local[at];
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 18;
  if (argc == 3 && std::strcmp(argv[1], "--seconds") == 0)
    seconds = std::atof(argv[2]);
  const auto rest = std::chrono::duration<double>(seconds / 4);
  constexpr int kSteps = 1024;
  int* steps = nullptr;
  int* out = nullptr;
  Check(cudaMalloc(&steps, kSteps * sizeof(int)), "cudaMalloc");
  Check(cudaMalloc(&out, 32 * sizeof(int)), "cudaMalloc");
  Check(cudaMemset(steps, 7, kSteps * sizeof(int)), "cudaMemset");
  std::this_thread::sleep_for(rest);
  Walk<<<1, 32>>>(steps, kSteps, out);
  Check(cudaDeviceSynchronize(), "Walk");
  std::this_thread::sleep_for(rest);
  // The driver shrinks it only when a new limit is set.
  Check(cudaDeviceSetLimit(cudaLimitStackSize, 1024), "cudaDeviceSetLimit");
  std::this_thread::sleep_for(rest);
  Walk<<<1, 32>>>(steps, kSteps, out);
  Check(cudaDeviceSynchronize(), "Walk again");
  int first = 0;
  Check(cudaMemcpy(&first, out, sizeof first, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::this_thread::sleep_for(rest);
  std::printf("first %d\n", first);
  return 0;
}
