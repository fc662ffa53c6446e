// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstddef>
#include <cstring>

#include "probe/hooks/cuda/state/overflow.h"
#include "probe/platform/dynamic.h"
#include "probe/stack/native/unwind.h"

namespace vramscope::probe::cuda {
namespace {

struct Listed {
  const char* prefix;
  Requester requester;
};
// By the beginnings of file names. libtorch_cuda asks the driver itself for symmetric memory, and
// has NCCL inside in some builds.
constexpr Listed kListed[] = {
    {"libc10_cuda.so", Requester::kPyTorch},
    {"libnccl", Requester::kCommunicator},
    {"libnvshmem", Requester::kCommunicator},
    {"libtorch_cuda", Requester::kCommunicator},
    {"libtorch_nvshmem", Requester::kCommunicator},
    {"libmpi", Requester::kCommunicator},
    {"libucm", Requester::kCommunicator},
    {"libucp", Requester::kCommunicator},
    {"libucs", Requester::kCommunicator},
    {"libuct", Requester::kCommunicator},
    {"libfabric", Requester::kCommunicator},
    {"libibverbs", Requester::kCommunicator},
    {"libcufile", Requester::kCommunicator},
    {"libgdrapi", Requester::kCommunicator},
    {"libcublas", Requester::kLibrary},
    {"libcudnn", Requester::kLibrary},
    {"libcufft", Requester::kLibrary},
    {"libcurand", Requester::kLibrary},
    {"libcusolver", Requester::kLibrary},
    {"libcusparse", Requester::kLibrary},
    {"libcupti", Requester::kLibrary},
    {"libnv", Requester::kLibrary},
};
// A program that has one of these can hand any of its memory to it.
constexpr const char* kPassingOn[] = {"libmpi", "libnvshmem", "libucp"};

bool BeginsWith(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

struct Binary {
  uintptr_t base;
  const char* path;  // "" for the program itself
};

bool FindBinary(uintptr_t pc, Binary* binary) {
  dl_phdr_info info{};
  if (DescribeModule(pc, &info)) {
    *binary = {info.dlpi_addr,
               info.dlpi_phnum != 0 && info.dlpi_name != nullptr ? info.dlpi_name : ""};
    return true;
  }
  Dl_info found{};
  if (dladdr(reinterpret_cast<const void*>(pc), &found) == 0)
    return false;
  *binary = {reinterpret_cast<uintptr_t>(found.dli_fbase),
             found.dli_fname != nullptr ? found.dli_fname : ""};
  return true;
}

}  // namespace

Requester ClassifyBinary(const char* path) {
  const char* const name = FileName(path);
  for (const Listed& listed : kListed) {
    if (BeginsWith(name, listed.prefix))
      return listed.requester;
  }
  return Requester::kProgram;
}

Requester FindRequester() {
  uintptr_t pcs[kMaxNativeDepth];
  const WalkStart start = WalkFromHere();
  const NativeWalk walk = WalkNativeStack(start, pcs, kMaxNativeDepth);
  Binary own{};
  FindBinary(reinterpret_cast<uintptr_t>(&ClassifyBinary), &own);
  Requester requester = Requester::kProgram;
  for (size_t i = 0; i < walk.depth; ++i) {
    Binary binary{};
    if (!FindBinary(pcs[i] - 1, &binary) || binary.base == own.base)
      continue;
    const char* const name = FileName(binary.path);
    if (BeginsWith(name, "libcuda.so") || BeginsWith(name, "libcudart"))
      continue;
    requester = ClassifyBinary(name);
    break;
  }
  if (requester != Requester::kProgram)
    return requester;
  for (const char* const prefix : kPassingOn) {
    if (FindLoadedLibrary(prefix) != nullptr)
      return Requester::kCommunicator;
  }
  return requester;
}

}  // namespace vramscope::probe::cuda
