// SPDX-License-Identifier: Apache-2.0
// CUDA graphs with memory nodes, captured and explicit: launched, launched again, updated, dropped,
// and their memory trimmed.
//
//   gpu_graphs [--seconds S]
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr size_t kMiB = size_t{1} << 20;

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess)
    return;
  std::fprintf(stderr, "gpu_graphs: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

__global__ void Fill(float* out, size_t count, float value) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x)
    out[i] = value;
}

cudaGraph_t Capture(cudaStream_t stream, size_t bytes) {
  cudaGraph_t graph = nullptr;
  float* scratch = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
  Check(cudaMallocAsync(&scratch, bytes, stream), "captured cudaMallocAsync");
  Fill<<<64, 256, 0, stream>>>(scratch, bytes / sizeof(float), 1);
  Check(cudaFreeAsync(scratch, stream), "captured cudaFreeAsync");
  Check(cudaStreamEndCapture(stream, &graph), "end capture");
  return graph;
}

cudaGraph_t Explicit(size_t bytes) {
  cudaGraph_t graph = nullptr;
  Check(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
  cudaMemAllocNodeParams parameters{};
  parameters.poolProps.allocType = cudaMemAllocationTypePinned;
  parameters.poolProps.location.type = cudaMemLocationTypeDevice;
  parameters.bytesize = bytes;
  cudaGraphNode_t alloc = nullptr, release = nullptr;
  Check(cudaGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &parameters), "alloc node");
  Check(cudaGraphAddMemFreeNode(&release, graph, &alloc, 1, parameters.dptr), "free node");
  return graph;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 18;
  if (argc == 3 && std::strcmp(argv[1], "--seconds") == 0)
    seconds = std::atof(argv[2]);
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreate(&stream), "cudaStreamCreate");
  const auto end =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  unsigned turn = 0;
  for (; std::chrono::steady_clock::now() < end; ++turn) {
    const size_t bytes = (16 + 16 * (turn % 11)) * kMiB;
    cudaGraph_t graph = turn % 2 == 0 ? Capture(stream, bytes) : Explicit(bytes);
    cudaGraphExec_t executable = nullptr;
    Check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (int launch = 0; launch < 3; ++launch) {
      Check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
      Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
    }
    if (turn % 8 == 7)
      Check(cudaDeviceGraphMemTrim(0), "cudaDeviceGraphMemTrim");
    Check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    Check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    if (turn % 16 == 15)
      Check(cudaDeviceGraphMemTrim(0), "cudaDeviceGraphMemTrim");
  }
  std::printf("graphs %u\n", turn);
  return 0;
}
