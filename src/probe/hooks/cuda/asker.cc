// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/asker.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstring>

#include "probe/platform/dynamic.h"
#include "probe/stack/unwind.h"
#include "probe/stack/unwind_modules.h"

namespace vramscope::probe::cuda {
namespace {

struct Listed {
  const char* prefix;
  Asker asker;
};
// By the beginnings of file names. libtorch_cuda asks the driver itself for symmetric memory, and
// has NCCL inside in some builds.
constexpr Listed kListed[] = {
    {"libc10_cuda.so", Asker::kPyTorch},
    {"libnccl", Asker::kCommunicator},
    {"libnvshmem", Asker::kCommunicator},
    {"libtorch_cuda", Asker::kCommunicator},
    {"libtorch_nvshmem", Asker::kCommunicator},
    {"libmpi", Asker::kCommunicator},
    {"libucm", Asker::kCommunicator},
    {"libucp", Asker::kCommunicator},
    {"libucs", Asker::kCommunicator},
    {"libuct", Asker::kCommunicator},
    {"libfabric", Asker::kCommunicator},
    {"libibverbs", Asker::kCommunicator},
    {"libcufile", Asker::kCommunicator},
    {"libgdrapi", Asker::kCommunicator},
    {"libcublas", Asker::kLibrary},
    {"libcudnn", Asker::kLibrary},
    {"libcufft", Asker::kLibrary},
    {"libcurand", Asker::kLibrary},
    {"libcusolver", Asker::kLibrary},
    {"libcusparse", Asker::kLibrary},
    {"libcupti", Asker::kLibrary},
    {"libnv", Asker::kLibrary},
};
// A program that has one of these can hand any of its memory to it.
constexpr const char* kPassingOn[] = {"libmpi", "libnvshmem", "libucp"};

bool BeginsWith(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

const char* FileName(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

struct Binary {
  uintptr_t base;
  const char* path;  // "" for the program itself
};

bool BinaryOf(uintptr_t pc, Binary* binary) {
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

Asker AskerOfFile(const char* path) {
  const char* const name = FileName(path);
  for (const Listed& listed : kListed) {
    if (BeginsWith(name, listed.prefix))
      return listed.asker;
  }
  return Asker::kProgram;
}

Asker FindAsker() {
  uintptr_t pcs[kMaxNativeDepth];
  const WalkStart start = WalkFromHere();
  const NativeWalk walk = WalkNativeStack(start, pcs, kMaxNativeDepth);
  Binary own{};
  BinaryOf(reinterpret_cast<uintptr_t>(&AskerOfFile), &own);
  Asker asker = Asker::kProgram;
  for (size_t i = 0; i < walk.depth; ++i) {
    Binary binary{};
    if (!BinaryOf(pcs[i] - 1, &binary) || binary.base == own.base)
      continue;
    const char* const name = FileName(binary.path);
    if (BeginsWith(name, "libcuda.so") || BeginsWith(name, "libcudart"))
      continue;
    asker = AskerOfFile(name);
    break;
  }
  if (asker != Asker::kProgram)
    return asker;
  for (const char* const prefix : kPassingOn) {
    if (FindLoadedLibrary(prefix) != nullptr)
      return Asker::kCommunicator;
  }
  return asker;
}

}  // namespace vramscope::probe::cuda
