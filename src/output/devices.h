// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "query/device_names.h"
#include "query/report.h"

// Devices and processes, by the names that people and other programs read.
namespace vramscope::output {

using query::DeviceIndex;
using query::DeviceKindName;
using query::DeviceMark;
using query::PidOf;
std::string DeviceMark(const query::Report& report, tables::DeviceId device);
std::string DeviceMark(const tables::Recording& recording, tables::DeviceId device);
int32_t DeviceIndex(const query::Report& report, tables::DeviceId device);

// "python train.py (pid 4711, rank 0)": enough of a command to know it by.
std::string ProcessLabel(const std::string& command, uint32_t pid, std::optional<int32_t> rank);
std::string ProcessLabel(const tables::Recording& recording, tables::ProcessId process);
// What was recorded: the first process's command line, else the session's name.
std::string RecordedCommand(const tables::Recording& recording);

}  // namespace vramscope::output
