// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/sample/nvml.h"

// What NVML says of a process, on each GPU.
namespace vramscope::cli {

struct GpuFigure {
  int32_t index = 0;
  std::string uuid;
  std::string name;
  std::optional<uint64_t> process_bytes;  // empty: NVML does not list the process there
  uint64_t used_bytes = 0;                // of the whole device
  uint64_t free_bytes = 0;
};

// One a GPU, in NVML's order. Empty without NVML.
std::vector<GpuFigure> ReadFigures(GpuMonitor* monitor, pid_t pid);

// Whether NVML lists the process on any GPU.
bool IsListed(const std::vector<GpuFigure>& figures);
// Of the process; 0 where it is not listed.
uint64_t ProcessBytes(const std::vector<GpuFigure>& figures);

struct FreedOnGpu {
  int32_t index = 0;
  std::string uuid;
  std::string name;
  uint64_t bytes = 0;
};
// What the process gave back between the two, GPUs without anything left out: by its own figures
// where NVML has them, else by those of the devices.
std::vector<FreedOnGpu> FreedBetween(const std::vector<GpuFigure>& before,
                                     const std::vector<GpuFigure>& after);

}  // namespace vramscope::cli
