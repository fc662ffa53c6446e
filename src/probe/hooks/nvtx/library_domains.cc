// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/nvtx/library_domains.h"

#include <cstdint>
#include <cstring>

#include "probe/stack/unwind_modules.h"

// A program's own domains come from its executable, from libraries of its own and from Python's
// nvtx package, so that a domain comes from some library says nothing. Known are the libraries that
// GPU programs are built on, by their file names; and by the names of their domains where they were
// linked into something else, or are headers.
namespace vramscope::probe::nvtx {
namespace {

constexpr const char* kDomains[] = {"NCCL", "NVSHMEM", "CCCL", "CUB", "Thrust", "UCX"};

constexpr const char* kFilePrefixes[] = {
    "libnccl",     "libnvshmem", "libcublas", "libcudnn", "libcufft", "libcusolver", "libcusparse",
    "libcutensor", "libnvinfer", "libtorch",  "libc10",   "libcudf",  "librmm",      "libraft",
    "libcuml",     "libkvikio",  "libucp",    "libucs",   "libuct"};

}  // namespace

bool IsLibraryDomain(const char* name, size_t size_bytes, const void* caller) {
  for (const char* domain : kDomains) {
    if (size_bytes == std::strlen(domain) && std::memcmp(name, domain, size_bytes) == 0)
      return true;
  }
  dl_phdr_info info{};
  if (!DescribeModule(reinterpret_cast<uintptr_t>(caller), &info) || info.dlpi_name == nullptr)
    return false;
  const char* const slash = std::strrchr(info.dlpi_name, '/');
  const char* const file = slash != nullptr ? slash + 1 : info.dlpi_name;
  for (const char* prefix : kFilePrefixes) {
    if (std::strncmp(file, prefix, std::strlen(prefix)) == 0)
      return true;
  }
  return false;
}

}  // namespace vramscope::probe::nvtx
