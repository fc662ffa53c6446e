// SPDX-License-Identifier: Apache-2.0
#include "record/sample/nvml.h"

#include <dlfcn.h>
#include <fmt/core.h>

namespace vramscope::cli {
namespace {

// From NVML's public, stable ABI: the types and calls used here.
using Device = void*;
using Return = int;
constexpr Return kSuccess = 0;
constexpr Return kInsufficientSize = 7;
constexpr uint64_t kNotAvailable = ~uint64_t{0};

struct MemoryV2 {
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | (2u << 24);

struct ProcessInfoV2 {
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};

template <class Function>
bool Resolve(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

struct Nvml::Api {
  void* library = nullptr;
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*driver_version)(char*, unsigned) = nullptr;
  Return (*device_count)(unsigned*) = nullptr;
  Return (*device_by_index)(unsigned, Device*) = nullptr;
  Return (*device_uuid)(Device, char*, unsigned) = nullptr;
  Return (*device_name)(Device, char*, unsigned) = nullptr;
  Return (*memory_info)(Device, MemoryV2*) = nullptr;
  Return (*compute_processes)(Device,
                              unsigned*,
                              ProcessInfoV2*) = nullptr;  // null: too old a driver
  std::vector<Device> devices;
  std::vector<ProcessInfoV2> buffer;
  bool initialised = false;
};

Nvml::Nvml() : api_(std::make_unique<Api>()) {}

Nvml::~Nvml() {
  if (api_->initialised)
    api_->shutdown();
  if (api_->library != nullptr)
    dlclose(api_->library);
}

util::Result<std::unique_ptr<Nvml>> Nvml::Load() {
  std::unique_ptr<Nvml> nvml(new Nvml);
  Api& api = *nvml->api_;
  api.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (api.library == nullptr) {
    return util::Status::Error("libnvidia-ml.so.1 is not installed");
  }
  if (!Resolve(api.library, "nvmlInit_v2", &api.init) ||
      !Resolve(api.library, "nvmlShutdown", &api.shutdown) ||
      !Resolve(api.library, "nvmlErrorString", &api.error_string) ||
      !Resolve(api.library, "nvmlSystemGetDriverVersion", &api.driver_version) ||
      !Resolve(api.library, "nvmlDeviceGetCount_v2", &api.device_count) ||
      !Resolve(api.library, "nvmlDeviceGetHandleByIndex_v2", &api.device_by_index) ||
      !Resolve(api.library, "nvmlDeviceGetUUID", &api.device_uuid) ||
      !Resolve(api.library, "nvmlDeviceGetName", &api.device_name) ||
      !Resolve(api.library, "nvmlDeviceGetMemoryInfo_v2", &api.memory_info)) {
    return util::Status::Error("libnvidia-ml.so.1 is older than driver 510");
  }
  Resolve(api.library, "nvmlDeviceGetComputeRunningProcesses_v3", &api.compute_processes);
  if (const Return result = api.init(); result != kSuccess) {
    return util::Status::Error(fmt::format("NVML does not start: {}", api.error_string(result)));
  }
  api.initialised = true;
  unsigned count = 0;
  if (const Return result = api.device_count(&count); result != kSuccess) {
    return util::Status::Error(fmt::format("NVML lists no devices: {}", api.error_string(result)));
  }
  for (unsigned index = 0; index < count; ++index) {
    Device device = nullptr;
    // A GPU that this user may not see, or that has fallen off the bus: the others still count.
    if (api.device_by_index(index, &device) != kSuccess)
      continue;
    char uuid[96] = {};
    char name[96] = {};
    api.device_uuid(device, uuid, sizeof uuid);
    api.device_name(device, name, sizeof name);
    api.devices.push_back(device);
    nvml->gpus_.push_back({.index = static_cast<int32_t>(index), .uuid = uuid, .name = name});
    const std::optional<NvmlMemory> memory = nvml->ReadMemory(nvml->gpus_.size() - 1);
    if (memory)
      nvml->gpus_.back().total_bytes = memory->total_bytes;
  }
  return nvml;
}

std::optional<NvmlMemory> Nvml::ReadMemory(size_t gpu) {
  MemoryV2 memory{};
  memory.version = kMemoryV2;
  if (api_->memory_info(api_->devices[gpu], &memory) != kSuccess)
    return std::nullopt;
  return NvmlMemory{.total_bytes = memory.total,
                    .reserved_bytes = memory.reserved,
                    .free_bytes = memory.free,
                    .used_bytes = memory.used};
}

bool Nvml::ReadProcesses(size_t gpu, std::vector<NvmlProcess>* processes) {
  processes->clear();
  if (api_->compute_processes == nullptr)
    return false;
  std::vector<ProcessInfoV2>& buffer = api_->buffer;
  if (buffer.empty())
    buffer.resize(64);
  // The list can grow between two calls; three tries settle any real machine.
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto count = static_cast<unsigned>(buffer.size());
    const Return result = api_->compute_processes(api_->devices[gpu], &count, buffer.data());
    if (result == kInsufficientSize) {
      buffer.resize(count + 64);
      continue;
    }
    if (result != kSuccess)
      return false;
    for (unsigned i = 0; i < count; ++i) {
      if (buffer[i].used_gpu_memory == kNotAvailable)
        continue;
      processes->push_back({.pid = buffer[i].pid, .used_bytes = buffer[i].used_gpu_memory});
    }
    return true;
  }
  return false;
}

std::string Nvml::DriverVersion() {
  char version[96] = {};
  return api_->driver_version(version, sizeof version) == kSuccess ? version : "";
}

}  // namespace vramscope::cli
