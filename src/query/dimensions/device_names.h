// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "format/enums.h"
#include "tables/row_of.h"

namespace vramscope::query {

// "gpu", "host" or "cpu".
inline const char* DeviceKindName(tables::DeviceKind kind) {
  switch (kind) {
    case tables::DeviceKind::kGpu:
      return "gpu";
    case tables::DeviceKind::kHost:
      return "host";
    case tables::DeviceKind::kCpu:
      break;
  }
  return "cpu";
}

// "gpu0", "host", "cpu"; `index` is NVML's.
inline std::string DeviceMark(tables::DeviceKind kind, int32_t index) {
  const std::string name = DeviceKindName(kind);
  return kind == tables::DeviceKind::kGpu ? name + std::to_string(index) : name;
}

// NVML's number.
inline int32_t DeviceIndex(const tables::Recording& recording, tables::DeviceId device) {
  const std::vector<tables::DeviceRow>& devices = recording.tables().devices;
  return device.value != 0 && device.value < devices.size() ? devices[device.value].index
                                                            : format::kNoDevice;
}

// 0 for no process.
inline uint32_t PidOf(const tables::Recording& recording, tables::ProcessId process) {
  return RowOf(recording.tables().processes, process).pid;
}

}  // namespace vramscope::query
