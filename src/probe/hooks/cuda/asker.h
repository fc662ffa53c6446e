// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vramscope::probe::cuda {

// Whose call of the driver the thread is in: of the first binary on its native stack that is
// neither the probe, nor the driver, nor the CUDA runtime.
enum class Asker : uint8_t {
  kProgram,  // the program, or a library that is not listed
  kPyTorch,  // its caching allocator, which asks again after it has given back what it had cached
  kLibrary,  // NVIDIA's mathematics
  // Passes its memory on to other processes or to network cards (NCCL, NVSHMEM, UCX, MPI), or may;
  // so does a program that has such a library.
  kCommunicator,
};

// Takes the loader's lock for a moment where the C library is older than 2.35.
Asker FindAsker();

// By the file name of a binary; kProgram where it is not listed.
Asker AskerOfFile(const char* path);

}  // namespace vramscope::probe::cuda
