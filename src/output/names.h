// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "query/dimensions/dimensions.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/report.h"

// Devices, processes, frames and stacks by the names that people and other programs read.
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
// The recorded program: the first process's command line, or the session's name if it has none.
std::string RecordedCommand(const tables::Recording& recording);
// How a process ended: "exit status 1", "killed by signal 9", "end not seen".
std::string WaitText(const tables::ProcessRow& process);
std::string WaitText(int wait_status);
// The launcher's note of how the program ended, where no process of it was recorded.
inline constexpr char kProgramEndNote[] = "program end";
// A line for each process that did not end with exit status 0.
std::vector<std::string> EndLines(const tables::Recording& recording);
// It never recorded: it began paused (--start-paused), and nothing started it.
bool WasPaused(const tables::Recording& recording);

// "model.py:42 forward".
std::string ShortFrame(const tables::Recording& recording, tables::FrameId frame);

// The user frames that called the innermost user frame, nearest first, at most `limit`.
std::vector<std::string> Callers(const tables::Recording& recording,
                                 tables::StackId stack,
                                 size_t limit);

std::string Joined(const std::vector<std::string>& items, std::string_view separator);

}  // namespace vramscope::output
