// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "util/status.h"

// The driver's checkpoints: all device memory of another process goes to host memory and comes
// back. The library is loaded at run time, in our own program only.
namespace vramscope::cli {

enum class CheckpointState : int { kRunning = 0, kLocked = 1, kCheckpointed = 2, kFailed = 3 };

// The result of a driver call.
struct DriverAnswer {
  int code = 0;
  bool ok() const { return code == 0; }
  bool timed_out() const;
  bool out_of_memory() const;
  std::string Text() const;  // "CUDA_ERROR_NOT_READY (600)"
};

class CheckpointDriver {
 public:
  // Loads and initialises the driver. The error says what is missing; `version` is the driver's as
  // NVML says it, "" if it does not.
  static util::Result<std::unique_ptr<CheckpointDriver>> Load(const std::string& version);
  ~CheckpointDriver();
  CheckpointDriver(const CheckpointDriver&) = delete;
  CheckpointDriver& operator=(const CheckpointDriver&) = delete;

  DriverAnswer GetState(int pid, CheckpointState* state);
  // The driver has given the process up.
  bool HasFailed(int pid);
  // The process's work is waited for; after the limit the process is left as it was.
  DriverAnswer Lock(int pid, std::chrono::milliseconds limit);
  DriverAnswer Checkpoint(int pid);
  DriverAnswer Restore(int pid);
  DriverAnswer Unlock(int pid);

 private:
  struct Api;

  CheckpointDriver();

  std::unique_ptr<Api> api_;
};

}  // namespace vramscope::cli
