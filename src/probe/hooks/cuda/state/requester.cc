// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/state/requester.h"

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstring>

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

constexpr char kSaver[] = "torch_memory_saver";
constinit std::atomic<bool> g_has_saver{false};

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

bool FindCaller(Binary* caller) {
  uintptr_t pcs[kMaxNativeDepth];
  const WalkStart start = WalkFromHere();
  const NativeWalk walk = WalkNativeStack(start, pcs, kMaxNativeDepth);
  Binary own{};
  FindBinary(reinterpret_cast<uintptr_t>(&FindCaller), &own);
  for (size_t i = 0; i < walk.depth; ++i) {
    if (!FindBinary(pcs[i] - 1, caller) || caller->base == own.base)
      continue;
    const char* const name = FileName(caller->path);
    if (!BeginsWith(name, "libcuda.so") && !BeginsWith(name, "libcudart"))
      return true;
  }
  return false;
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
  Binary caller{};
  const Requester requester =
      FindCaller(&caller) ? ClassifyBinary(caller.path) : Requester::kProgram;
  if (requester != Requester::kProgram)
    return requester;
  for (const char* const prefix : kPassingOn) {
    if (FindLoadedLibrary(prefix) != nullptr)
      return Requester::kCommunicator;
  }
  return requester;
}

void ObserveSaver(const char* file) {
  if (BeginsWith(FileName(file), kSaver))
    g_has_saver.store(true, std::memory_order_relaxed);
}

void LookForSaver() {
  if (FindLoadedLibrary(kSaver) != nullptr)
    g_has_saver.store(true, std::memory_order_relaxed);
}

// Its functions read variables of the thread. `resume` maps memory outside of any region.
const char* FindRegionTag() {
  if (!g_has_saver.load(std::memory_order_relaxed))
    return nullptr;
  Binary caller{};
  if (!FindCaller(&caller) || !BeginsWith(FileName(caller.path), kSaver))
    return nullptr;
  void* const saver = ReferToLoaded(caller.path);
  if (saver == nullptr)
    return nullptr;
  const auto is_in_region =
      reinterpret_cast<bool (*)()>(RealDlsym(saver, "tms_get_interesting_region"));
  const auto get_tag = reinterpret_cast<const char* (*)()>(RealDlsym(saver, "tms_get_current_tag"));
  return is_in_region != nullptr && get_tag != nullptr && is_in_region() ? get_tag() : nullptr;
}

}  // namespace vramscope::probe::cuda
