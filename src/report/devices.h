// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "engine/query/report.h"

// How devices are called, the same in every writer.
namespace vramscope::report {

// "gpu", "host" or "cpu".
const char* DeviceKindName(trace::DeviceKind kind);

// The number by which people know a device of the report: NVML's for GPUs, -1 cpu, -2 host.
int32_t DeviceIndex(const engine::Report& report, trace::DeviceId device);

// "gpu0", "host", "cpu".
std::string DeviceMark(trace::DeviceKind kind, int32_t index);

// The same of a device of the trace.
int32_t DeviceIndex(const trace::Trace& trace, trace::DeviceId device);
std::string DeviceMark(const trace::Trace& trace, trace::DeviceId device);

}  // namespace vramscope::report
