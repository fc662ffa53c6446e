// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tables/recording.h"

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

}  // namespace vramscope::query
