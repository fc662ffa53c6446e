// SPDX-License-Identifier: Apache-2.0
// Managed memory, 1 GiB at most: touched by kernels and by the host, prefetched, discarded, freed.
//
//   gpu_managed touch|paged [--seconds S]
//
// `paged` does what a paged optimizer does: its state goes to the GPU for each step, and back.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kMostBytes = 1024 * kMiB;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess)
    return;
  std::fprintf(stderr, "gpu_managed: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

__global__ void Add(unsigned* values, size_t count, unsigned by) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x)
    values[i] += by;
}

unsigned* Allocate(size_t bytes) {
  void* memory = nullptr;
  Check(cudaMallocManaged(&memory, bytes), "cudaMallocManaged");
  return static_cast<unsigned*>(memory);
}

void Touch(unsigned* values, size_t bytes, unsigned by) {
  Add<<<256, 256>>>(values, bytes / sizeof(unsigned), by);
  Check(cudaGetLastError(), "Add");
}

void Prefetch(unsigned* values, size_t bytes, bool to_device) {
#if CUDART_VERSION >= 13000
  cudaMemLocation where{};
  where.type = to_device ? cudaMemLocationTypeDevice : cudaMemLocationTypeHost;
  Check(cudaMemPrefetchAsync(values, bytes, where, 0), "cudaMemPrefetchAsync");
#else
  Check(cudaMemPrefetchAsync(values, bytes, to_device ? 0 : cudaCpuDeviceId),
        "cudaMemPrefetchAsync");
#endif
}

unsigned long long Sum(const unsigned* values, size_t bytes) {
  unsigned long long sum = 0;
  for (size_t i = 0; i < bytes / sizeof(unsigned); i += 1024)
    sum += values[i];
  return sum;
}

void Rest(double seconds) {
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

unsigned long long TouchAndFree(double seconds) {
  unsigned long long sum = 0;
  for (unsigned round = 0; round < 2; ++round) {
    unsigned* const first = Allocate(64 * kMiB);
    Rest(seconds / 16);
    Touch(first, 64 * kMiB, 1);
    Rest(seconds / 16);
    unsigned* const second = Allocate(300 * kMiB);
    std::memset(second, 0, 300 * kMiB);  // on the host
    Rest(seconds / 16);
    Touch(second, 300 * kMiB, round);
    Rest(seconds / 16);
    void* plain = nullptr;
    Check(cudaMalloc(&plain, 512 * kMiB), "cudaMalloc");
    Rest(seconds / 16);
    sum += Sum(first, 64 * kMiB) + Sum(second, 300 * kMiB);
    Prefetch(second, 300 * kMiB, false);
    Rest(seconds / 16);
    Touch(second, 300 * kMiB, 1);
    Touch(first, 64 * kMiB, 1);
    Check(cudaFree(plain), "cudaFree");
    Rest(seconds / 16);
    sum += Sum(second, 300 * kMiB);
    Check(cudaFree(second), "cudaFree");
    Rest(seconds / 32);
    Check(cudaFree(first), "cudaFree");
    Rest(seconds / 32);
  }
  return sum;
}

unsigned long long Paged(double seconds) {
  constexpr size_t kBytes = 256 * kMiB;
  constexpr int kSteps = 20;
  unsigned* const states[] = {Allocate(kBytes), Allocate(kBytes)};
  for (unsigned* const state : states)
    std::memset(state, 0, kBytes);
  for (int step = 0; step < kSteps; ++step) {
    for (unsigned* const state : states) {
      Prefetch(state, kBytes, true);
      Touch(state, kBytes, static_cast<unsigned>(step));
    }
    Rest(seconds / kSteps / 2);
    for (unsigned* const state : states)
      Prefetch(state, kBytes, false);
    Rest(seconds / kSteps / 2);
  }
  const unsigned long long sum = Sum(states[0], kBytes) + Sum(states[1], kBytes);
  for (unsigned* const state : states)
    Check(cudaFree(state), "cudaFree");
  Rest(seconds / kSteps);
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const bool paged = argc > 1 && std::strcmp(argv[1], "paged") == 0;
  const double seconds =
      argc == 4 && std::strcmp(argv[2], "--seconds") == 0 ? std::atof(argv[3]) : 12;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  Check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  // Managed memory beyond what is free would move pages to and fro: not on a machine of others.
  if (free_bytes < 4 * kMostBytes) {
    std::fprintf(stderr, "gpu_managed: less than 4 GiB of the GPU are free\n");
    return 1;
  }
  std::printf("sum %llu\n", paged ? Paged(seconds) : TouchAndFree(seconds));
  return 0;
}
