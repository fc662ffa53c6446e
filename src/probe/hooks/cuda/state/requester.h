// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The library whose call of the driver the thread is in: the first binary on its native stack that
// is not the probe, the driver or the CUDA runtime. These take the loader's lock for a moment where
// the C library is older than 2.35.
namespace vramscope::probe::cuda {

enum class Requester : uint8_t {
  kProgram,  // the program, or a library that is not listed
  kPyTorch,  // its caching allocator, which asks again after it has given back what it had cached
  kLibrary,  // NVIDIA's mathematics
  // Passes its memory on to other processes or to network cards (NCCL, NVSHMEM, UCX, MPI), or may;
  // so does a program that has such a library.
  kCommunicator,
};
Requester FindRequester();

// By the file name of a binary; kProgram where it is not listed.
Requester ClassifyBinary(const char* path);

// The tag of torch_memory_saver's region that the thread is in, if the saver made the call, else
// nullptr. It stays valid until the thread enters another region. In a process without a saver this
// is one load.
const char* FindRegionTag();
// A library is about to be opened; some are loaded already, which takes the loader's lock.
void ObserveSaver(const char* file);
void LookForSaver();

}  // namespace vramscope::probe::cuda
