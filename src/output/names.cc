// SPDX-License-Identifier: Apache-2.0
#include "output/names.h"

#include <fmt/format.h>

#include <algorithm>

#include "format/enums.h"
#include "query/dimensions/frames.h"
#include "tables/imported.h"

namespace vramscope::output {
namespace {

const tables::DeviceRow* Find(const tables::Recording& recording, tables::DeviceId device) {
  const std::vector<tables::DeviceRow>& devices = recording.tables().devices;
  return device.value != 0 && device.value < devices.size() ? &devices[device.value] : nullptr;
}

const query::DeviceReport* Find(const query::Report& report, tables::DeviceId device) {
  const auto found = std::find_if(report.devices.begin(), report.devices.end(),
                                  [&](const auto& entry) { return entry.device == device; });
  return found == report.devices.end() ? nullptr : &*found;
}

const tables::ProcessRow* Find(const tables::Recording& recording, tables::ProcessId process) {
  const std::vector<tables::ProcessRow>& processes = recording.tables().processes;
  return process.value != 0 && process.value < processes.size() ? &processes[process.value]
                                                                : nullptr;
}

}  // namespace

std::string DeviceMark(const query::Report& report, tables::DeviceId device) {
  const query::DeviceReport* const found = Find(report, device);
  return found == nullptr ? "?" : DeviceMark(found->kind, found->index);
}

std::string DeviceMark(const tables::Recording& recording, tables::DeviceId device) {
  const tables::DeviceRow* const found = Find(recording, device);
  return found == nullptr ? "?" : DeviceMark(found->kind, found->index);
}

int32_t DeviceIndex(const query::Report& report, tables::DeviceId device) {
  const query::DeviceReport* const found = Find(report, device);
  return found == nullptr ? format::kNoDevice : found->index;
}

std::string ProcessLabel(const std::string& command, uint32_t pid, std::optional<int32_t> rank) {
  // The first two words say which program: "python train.py", "torchrun --nproc 2".
  std::string label;
  size_t at = 0;
  for (int words = 0; words < 2 && at < command.size(); ++words) {
    const size_t end = std::min(command.find(' ', at), command.size());
    if (!label.empty())
      label += ' ';
    label += query::Basename(std::string_view(command).substr(at, end - at));
    at = end + 1;
  }
  label += label.empty() ? "(pid " : " (pid ";
  label += pid == 0 ? "unknown" : std::to_string(pid);  // as of most imports
  if (rank)
    label += fmt::format(", rank {}", *rank);
  return label + ")";
}

std::string ProcessLabel(const tables::Recording& recording, tables::ProcessId process) {
  const tables::ProcessRow* const found = Find(recording, process);
  if (found == nullptr)
    return "no recorded process";
  return ProcessLabel(std::string(recording.string(found->command)), found->pid,
                      found->rank < 0 ? std::nullopt : std::optional(found->rank));
}

std::string WaitText(const tables::ProcessRow& process) {
  if (process.wait_status < 0)
    return process.closed_cleanly != 0 ? "ended" : "end not seen";
  return WaitText(process.wait_status);
}

// As wait(2) reports it.
std::string WaitText(int wait_status) {
  const int signal = wait_status & 0x7f;
  if (signal == 0)
    return fmt::format("exit status {}", (wait_status >> 8) & 0xff);
  return fmt::format("killed by signal {}", signal);
}

std::vector<std::string> EndLines(const tables::Recording& recording) {
  constexpr size_t kMostLines = 4;
  const std::vector<tables::ProcessRow>& processes = recording.tables().processes;
  std::vector<std::string> lines;
  size_t left_out = 0;
  for (size_t i = 1; i < processes.size(); ++i) {
    const tables::ProcessRow& process = processes[i];
    if (process.wait_status <= 0)
      continue;
    if (lines.size() == kMostLines) {
      ++left_out;
      continue;
    }
    std::string who = "The program";
    if (i > 1) {
      who = process.rank < 0 ? fmt::format("Process {}", process.pid)
                             : fmt::format("Process {}, rank {},", process.pid, process.rank);
    }
    const bool killed = (process.wait_status & 0x7f) != 0;
    lines.push_back(fmt::format("{} {} {}", who, killed ? "was" : "ended with", WaitText(process)));
  }
  const std::string_view end = tables::NoteOf(recording, kProgramEndNote);
  if (!end.empty() && end != WaitText(0))
    lines.push_back(
        fmt::format("The program {} {}", end.starts_with("killed") ? "was" : "ended with", end));
  if (left_out > 0)
    lines.push_back(fmt::format("({} more processes did not end with exit status 0)", left_out));
  return lines;
}

bool WasPaused(const tables::Recording& recording) {
  return !tables::NoteOf(recording, tables::kPausedNote).empty();
}

std::string RecordedCommand(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  // A snapshot does not say what made it.
  const std::string_view command =
      tables.processes.size() > 1 ? recording.string(tables.processes[1].command) : "";
  return command.empty() ? tables.session.name : std::string(command);
}

namespace {

// "GPT.forward.<locals>.step" -> "step"; C++ names lose their arguments, not their scope.
std::string_view ShortFunction(std::string_view name, tables::FrameKind kind) {
  if (kind == tables::FrameKind::kPython) {
    const size_t dot = name.rfind('.');
    return dot == std::string_view::npos ? name : name.substr(dot + 1);
  }
  const size_t arguments = name.find('(');
  // "(anonymous namespace)::f(int)" begins with a parenthesis that is part of the scope.
  return arguments == 0 || arguments == std::string_view::npos ? name : name.substr(0, arguments);
}

}  // namespace

std::string ShortFrame(const tables::Recording& recording, tables::FrameId frame) {
  const std::vector<tables::FrameRow>& frames = recording.tables().frames;
  if (frame.value >= frames.size())
    return "?";
  const tables::FrameRow& row = frames[frame.value];
  const std::string_view function = ShortFunction(recording.string(row.function), row.kind);
  const std::string_view file = query::Basename(recording.string(row.file));
  if (file.empty()) {
    const std::string_view image = query::Basename(recording.string(row.image));
    return image.empty() ? std::string(function) : fmt::format("{} {}", image, function);
  }
  if (row.line == 0)
    return fmt::format("{} {}", file, function);
  return fmt::format("{}:{} {}", file, row.line, function);
}

std::vector<std::string> Callers(const tables::Recording& recording,
                                 tables::StackId stack,
                                 size_t limit) {
  std::vector<std::string> callers;
  bool innermost = true;
  for (const tables::FrameId frame : query::StackFrames(recording, stack)) {
    if (!query::IsUserFrame(recording, frame))
      continue;
    if (!innermost)
      callers.push_back(ShortFrame(recording, frame));
    innermost = false;
    if (callers.size() == limit)
      break;
  }
  return callers;
}

std::string Joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty())
      text += separator;
    text += item;
  }
  return text;
}

}  // namespace vramscope::output
