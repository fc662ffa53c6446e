// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "base/raw_file.h"
#include "probe/hooks/cuda/attach/attach.h"

namespace vramscope::probe::cuda {
namespace {

struct Tool {
  const char* library;  // part of the file name
  const char* name;
  bool must_be_alone;
};

constexpr Tool kTools[] = {
    {"libTreeLauncherTargetInjection", "compute-sanitizer or Nsight Compute", true},
    {"libsanitizer-collection", "compute-sanitizer", true},
    {"libToolsInjection", "Nsight Systems", false},
    {"libvgpu.so", "HAMi", false},
    {"torch_memory_saver", "torch_memory_saver", false},
};

void Add(const char* name, OtherTools* tools) {
  if (std::strstr(tools->names, name) != nullptr)
    return;
  const size_t used = std::strlen(tools->names);
  const size_t separator = used != 0 ? 2 : 0;
  const size_t size = std::strlen(name);
  if (used + separator + size >= sizeof tools->names)
    return;
  std::memcpy(tools->names + used, ", ", separator);
  std::memcpy(tools->names + used + separator, name, size + 1);
}

int LookAtLibrary(dl_phdr_info* info, size_t, void* data) {
  auto* const tools = static_cast<OtherTools*>(data);
  if (info->dlpi_name == nullptr)
    return 0;
  const char* const slash = std::strrchr(info->dlpi_name, '/');
  const char* const file = slash != nullptr ? slash + 1 : info->dlpi_name;
  for (const Tool& tool : kTools) {
    if (std::strstr(file, tool.library) == nullptr)
      continue;
    Add(tool.name, tools);
    tools->must_be_alone |= tool.must_be_alone;
  }
  return 0;
}

bool ReadStart(const char* path, char* text, size_t size) {
  const int fd = base::OpenFile(path, O_RDONLY);
  if (fd < 0)
    return false;
  const ssize_t got = base::ReadFile(fd, text, size - 1);
  base::CloseFile(fd);
  text[got > 0 ? got : 0] = '\0';
  return got > 0;
}

// The debugger's name is the first line of /proc/PID/comm.
void LookAtTracer(OtherTools* tools) {
  char status[2048];
  if (!ReadStart("/proc/self/status", status, sizeof status))
    return;
  constexpr char kField[] = "\nTracerPid:\t";
  const char* pid = std::strstr(status, kField);
  if (pid == nullptr || pid[sizeof kField - 1] == '0')
    return;
  pid += sizeof kField - 1;
  char path[32] = "/proc/";
  size_t size = 6;
  while (*pid >= '0' && *pid <= '9' && size < 20)
    path[size++] = *pid++;
  std::memcpy(path + size, "/comm", 6);
  char name[32];
  if (ReadStart(path, name, sizeof name) && std::strncmp(name, "cuda-gdb", 8) == 0) {
    Add("cuda-gdb", tools);
    tools->must_be_alone = true;
  }
}

}  // namespace

void FindOtherTools(OtherTools* tools) {
  const int saved_errno = errno;
  dl_iterate_phdr(LookAtLibrary, tools);
  LookAtTracer(tools);
  const char* const injected = getenv("CUDA_INJECTION64_PATH");
  if (injected != nullptr && *injected != '\0' &&
      std::strstr(injected, "libvramscope_probe") == nullptr) {
    Add("CUDA_INJECTION64_PATH", tools);
  }
  errno = saved_errno;
}

}  // namespace vramscope::probe::cuda
