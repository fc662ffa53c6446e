// SPDX-License-Identifier: Apache-2.0
#include "report/devices.h"

namespace vramscope::report {

const char* DeviceKindName(trace::DeviceKind kind) {
  switch (kind) {
    case trace::DeviceKind::kGpu:
      return "gpu";
    case trace::DeviceKind::kHost:
      return "host";
    case trace::DeviceKind::kCpu:
      break;
  }
  return "cpu";
}

int32_t DeviceIndex(const engine::Report& report, trace::DeviceId device) {
  for (const engine::DeviceReport& candidate : report.devices) {
    if (candidate.device == device)
      return candidate.index;
  }
  return format::kNoDevice;
}

std::string DeviceMark(trace::DeviceKind kind, int32_t index) {
  const char* name = DeviceKindName(kind);
  return kind == trace::DeviceKind::kGpu ? name + std::to_string(index) : name;
}

int32_t DeviceIndex(const trace::Trace& trace, trace::DeviceId device) {
  const auto at = static_cast<size_t>(device.value);
  return device.value >= 0 && at < trace.devices().size() ? trace.devices()[at].index
                                                          : format::kNoDevice;
}

std::string DeviceMark(const trace::Trace& trace, trace::DeviceId device) {
  const auto at = static_cast<size_t>(device.value);
  if (device.value < 0 || at >= trace.devices().size())
    return "?";
  return DeviceMark(trace.devices()[at].kind, trace.devices()[at].index);
}

}  // namespace vramscope::report
