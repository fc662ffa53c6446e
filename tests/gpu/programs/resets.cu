// SPDX-License-Identifier: Apache-2.0
// Three times in a row: work in the primary context, and its end.
//
//   gpu_resets reset|managed|primary-reset|release [--seconds S]
//
// `reset` is cudaDeviceReset; so is `managed`, with managed memory and kernels that call malloc().
// The others are the driver's own calls.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kRounds = 3;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess)
    return;
  std::fprintf(stderr, "gpu_resets: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void Rest(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

__global__ void Fill(unsigned* values, size_t count, unsigned with) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x)
    values[i] = with + static_cast<unsigned>(i);
}

unsigned long long WithRuntime(int round, double seconds) {
  const size_t bytes = (40 + 8 * static_cast<size_t>(round)) * kMiB;
  unsigned* values = nullptr;
  void* pooled = nullptr;
  Check(cudaMalloc(&values, bytes), "cudaMalloc");
  Check(cudaMallocAsync(&pooled, 3 * kMiB, nullptr), "cudaMallocAsync");
  Fill<<<64, 256>>>(values, bytes / sizeof(unsigned), static_cast<unsigned>(round));
  unsigned last = 0;
  Check(
      cudaMemcpy(&last, values + bytes / sizeof(unsigned) - 1, sizeof last, cudaMemcpyDeviceToHost),
      "cudaMemcpy");
  Rest(seconds / 2);
  Check(cudaDeviceReset(), "cudaDeviceReset");
  Rest(seconds / 2);
  return last;
}

// One thread allocates from the device's heap, which the driver makes at the first launch.
__global__ void FillAndAllocate(unsigned* values, size_t count, unsigned with, void** kept) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x)
    values[i] = with + static_cast<unsigned>(i);
  if (blockIdx.x == 0 && threadIdx.x == 0)
    *kept = malloc(1024);
}

// Of the second allocation only a half is touched; one round frees it before the reset.
unsigned long long WithManaged(int round, double seconds) {
  constexpr size_t kFirst = 64 * kMiB / sizeof(unsigned);
  constexpr size_t kHalf = 18 * kMiB / sizeof(unsigned);
  void** kept = nullptr;
  unsigned* first = nullptr;
  unsigned* second = nullptr;
  Check(cudaMalloc(&kept, kMiB), "cudaMalloc");
  Check(cudaMallocManaged(&first, kFirst * sizeof(unsigned)), "cudaMallocManaged");
  Check(cudaMallocManaged(&second, 2 * kHalf * sizeof(unsigned)), "cudaMallocManaged");
  FillAndAllocate<<<64, 256>>>(first, kFirst, static_cast<unsigned>(round), kept);
  FillAndAllocate<<<64, 256>>>(second, kHalf, static_cast<unsigned>(round), kept);
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  Rest(seconds / 2);
  const unsigned last = first[kFirst - 1] + second[kHalf - 1];
  if (round == 1)
    Check(cudaFree(second), "cudaFree");
  Check(cudaDeviceReset(), "cudaDeviceReset");
  Rest(seconds / 2);
  return last;
}

class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW)) { Call<unsigned>("cuInit", 0u); }
  template <class... Args>
  void Call(const char* name, Args... args) const {
    auto* const function =
        library_ == nullptr ? nullptr : reinterpret_cast<int (*)(Args...)>(dlsym(library_, name));
    const int result = function == nullptr ? -1 : function(args...);
    if (result == 0)
      return;
    std::fprintf(stderr, "gpu_resets: %s: %d\n", name, result);
    std::exit(1);
  }

 private:
  void* library_;
};

unsigned long long WithDriver(const Driver& driver, bool resets, int round, double seconds) {
  using Pointer = unsigned long long;
  const size_t bytes = (40 + 8 * static_cast<size_t>(round)) * kMiB;
  void* context = nullptr;
  Pointer memory = 0;
  unsigned last = 0;
  driver.Call("cuDevicePrimaryCtxRetain", &context, 0);
  driver.Call("cuCtxSetCurrent", context);
  driver.Call("cuMemAlloc_v2", &memory, bytes);
  driver.Call("cuMemsetD32_v2", memory, static_cast<unsigned>(round) + 7u, bytes / 4);
  driver.Call("cuMemcpyDtoH_v2", static_cast<void*>(&last), memory + bytes - 4, sizeof last);
  Rest(seconds / 2);
  driver.Call(resets ? "cuDevicePrimaryCtxReset_v2" : "cuDevicePrimaryCtxRelease_v2", 0);
  Rest(seconds / 2);
  return last;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const how = argc > 1 ? argv[1] : "reset";
  const double seconds =
      argc == 4 && std::strcmp(argv[2], "--seconds") == 0 ? std::atof(argv[3]) : 12;
  unsigned long long sum = 0;
  if (std::strcmp(how, "reset") == 0) {
    for (int round = 0; round < kRounds; ++round)
      sum += WithRuntime(round, seconds / kRounds);
  } else if (std::strcmp(how, "managed") == 0) {
    for (int round = 0; round < kRounds; ++round)
      sum += WithManaged(round, seconds / kRounds);
  } else {
    const Driver driver;
    for (int round = 0; round < kRounds; ++round)
      sum += WithDriver(driver, std::strcmp(how, "primary-reset") == 0, round, seconds / kRounds);
  }
  std::printf("sum %llu\n", sum);
  return 0;
}
