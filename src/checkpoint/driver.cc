// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/driver.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace vramscope::cli {
namespace {

// From the driver's public, stable ABI: the structures and codes used here.
struct LockArguments {
  unsigned timeout_ms = 0;
  unsigned reserved0 = 0;
  uint64_t reserved1[7] = {};
};

constexpr int kOutOfMemory = 2;
constexpr int kNotReady = 600;
constexpr int kFirstMajor = 570;

template <class Function>
bool Resolve(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

const char* NameOf(int code) {
  switch (code) {
    case 1:
      return "CUDA_ERROR_INVALID_VALUE";
    case kOutOfMemory:
      return "CUDA_ERROR_OUT_OF_MEMORY";
    case 3:
      return "CUDA_ERROR_NOT_INITIALIZED";
    case 100:
      return "CUDA_ERROR_NO_DEVICE";
    case 304:
      return "CUDA_ERROR_OPERATING_SYSTEM";
    case 401:
      return "CUDA_ERROR_ILLEGAL_STATE";
    case kNotReady:
      return "CUDA_ERROR_NOT_READY";
    case 800:
      return "CUDA_ERROR_NOT_PERMITTED";
    case 801:
      return "CUDA_ERROR_NOT_SUPPORTED";
    case 999:
      return "CUDA_ERROR_UNKNOWN";
    default:
      return "error";
  }
}

}  // namespace

struct CheckpointDriver::Api {
  int (*init)(unsigned) = nullptr;
  int (*get_state)(int, int*) = nullptr;
  int (*lock)(int, LockArguments*) = nullptr;
  int (*checkpoint)(int, void*) = nullptr;
  int (*restore)(int, void*) = nullptr;
  int (*unlock)(int, void*) = nullptr;
};

bool DriverAnswer::timed_out() const {
  return code == kNotReady;
}

bool DriverAnswer::out_of_memory() const {
  return code == kOutOfMemory;
}

std::string DriverAnswer::Text() const {
  return fmt::format("{} ({})", NameOf(code), code);
}

CheckpointDriver::CheckpointDriver() : api_(std::make_unique<Api>()) {}

// The library stays: a driver is not made to be unloaded.
CheckpointDriver::~CheckpointDriver() = default;

util::Result<std::unique_ptr<CheckpointDriver>> CheckpointDriver::Load(const std::string& version) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return util::Status::Error("the NVIDIA driver is missing: libcuda.so.1 is not installed");
  std::unique_ptr<CheckpointDriver> driver(new CheckpointDriver);
  Api& api = *driver->api_;
  if (!Resolve(library, "cuInit", &api.init) ||
      !Resolve(library, "cuCheckpointProcessGetState", &api.get_state) ||
      !Resolve(library, "cuCheckpointProcessLock", &api.lock) ||
      !Resolve(library, "cuCheckpointProcessCheckpoint", &api.checkpoint) ||
      !Resolve(library, "cuCheckpointProcessRestore", &api.restore) ||
      !Resolve(library, "cuCheckpointProcessUnlock", &api.unlock)) {
    return util::Status::Error(
        fmt::format("the driver{} cannot checkpoint: install driver {} or newer",
                    version.empty() ? "" : " " + version, kFirstMajor));
  }
  // The devices of the process, whichever of them this shell is meant to use.
  unsetenv("CUDA_VISIBLE_DEVICES");
  // This program must not be recorded or profiled itself.
  unsetenv("CUDA_INJECTION64_PATH");
  if (const DriverAnswer answer{api.init(0)}; !answer.ok())
    return util::Status::Error("the NVIDIA driver does not start: " + answer.Text());
  return driver;
}

DriverAnswer CheckpointDriver::GetState(int pid, CheckpointState* state) {
  int value = 0;
  const DriverAnswer answer{api_->get_state(pid, &value)};
  *state = static_cast<CheckpointState>(value);
  return answer;
}

bool CheckpointDriver::HasFailed(int pid) {
  CheckpointState state{};
  return GetState(pid, &state).ok() && state == CheckpointState::kFailed;
}

DriverAnswer CheckpointDriver::Lock(int pid, std::chrono::milliseconds limit) {
  // 0 would be no limit.
  const int64_t most = std::numeric_limits<unsigned>::max();
  LockArguments arguments{.timeout_ms =
                              static_cast<unsigned>(std::clamp<int64_t>(limit.count(), 1, most))};
  return {api_->lock(pid, &arguments)};
}

DriverAnswer CheckpointDriver::Checkpoint(int pid) {
  return {api_->checkpoint(pid, nullptr)};
}

DriverAnswer CheckpointDriver::Restore(int pid) {
  return {api_->restore(pid, nullptr)};
}

DriverAnswer CheckpointDriver::Unlock(int pid) {
  return {api_->unlock(pid, nullptr)};
}

}  // namespace vramscope::cli
