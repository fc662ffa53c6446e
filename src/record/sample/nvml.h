// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "util/status.h"

// The few questions that the launcher asks NVML. The library is loaded at run time, in the launcher
// only: never in the recorded program.
namespace vramscope::cli {

struct NvmlMemory {
  uint64_t total_bytes = 0;
  uint64_t reserved_bytes = 0;  // driver and firmware; not part of used_bytes
  uint64_t free_bytes = 0;
  uint64_t used_bytes = 0;
};

struct NvmlProcess {
  uint32_t pid = 0;
  uint64_t used_bytes = 0;
};

// The GPU readings that a sampler needs; a seam for tests.
class GpuMonitor {
 public:
  struct Gpu {
    int32_t index = 0;  // NVML's
    std::string uuid;
    std::string name;
    uint64_t total_bytes = 0;
  };
  virtual ~GpuMonitor() = default;
  virtual const std::vector<Gpu>& gpus() const = 0;
  // `gpu` is a position in gpus(). Nothing if NVML could not answer.
  virtual std::optional<NvmlMemory> ReadMemory(size_t gpu) = 0;
  // Replaces *processes by those that NVML lists with a figure. False if NVML could not answer.
  virtual bool ReadProcesses(size_t gpu, std::vector<NvmlProcess>* processes) = 0;
};

class Nvml : public GpuMonitor {
 public:
  // Loads and initialises NVML. The error says what is missing, for `doctor`.
  static util::Result<std::unique_ptr<Nvml>> Load();
  ~Nvml() override;
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::vector<Gpu>& gpus() const override { return gpus_; }
  std::optional<NvmlMemory> ReadMemory(size_t gpu) override;
  bool ReadProcesses(size_t gpu, std::vector<NvmlProcess>* processes) override;

  // As in "580.65.06"; "" if NVML does not say.
  std::string DriverVersion();

 private:
  struct Api;

  Nvml();

  std::unique_ptr<Api> api_;
  std::vector<Gpu> gpus_;
};

}  // namespace vramscope::cli
