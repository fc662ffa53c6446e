// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/figures.h"

#include <algorithm>

namespace vramscope::cli {

std::vector<GpuFigure> ReadFigures(GpuMonitor* monitor, pid_t pid) {
  std::vector<GpuFigure> figures;
  if (monitor == nullptr)
    return figures;
  std::vector<NvmlProcess> processes;
  for (size_t gpu = 0; gpu < monitor->gpus().size(); ++gpu) {
    const GpuMonitor::Gpu& facts = monitor->gpus()[gpu];
    GpuFigure& figure = figures.emplace_back();
    figure.index = facts.index;
    figure.uuid = facts.uuid;
    figure.name = facts.name;
    if (const std::optional<NvmlMemory> memory = monitor->ReadMemory(gpu)) {
      figure.used_bytes = memory->used_bytes;
      figure.free_bytes = memory->free_bytes;
    }
    if (!monitor->ReadProcesses(gpu, &processes))
      continue;
    for (const NvmlProcess& process : processes) {
      if (process.pid == static_cast<uint32_t>(pid))
        figure.process_bytes = figure.process_bytes.value_or(0) + process.used_bytes;
    }
  }
  return figures;
}

bool IsListed(const std::vector<GpuFigure>& figures) {
  return std::any_of(figures.begin(), figures.end(),
                     [](const GpuFigure& figure) { return figure.process_bytes.has_value(); });
}

uint64_t ProcessBytes(const std::vector<GpuFigure>& figures) {
  uint64_t bytes = 0;
  for (const GpuFigure& figure : figures)
    bytes += figure.process_bytes.value_or(0);
  return bytes;
}

std::vector<FreedOnGpu> FreedBetween(const std::vector<GpuFigure>& before,
                                     const std::vector<GpuFigure>& after) {
  const bool by_process = IsListed(before);
  std::vector<FreedOnGpu> freed;
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    const uint64_t from = by_process ? before[i].process_bytes.value_or(0) : before[i].used_bytes;
    const uint64_t to = by_process ? after[i].process_bytes.value_or(0) : after[i].used_bytes;
    if (from > to) {
      freed.push_back({.index = before[i].index,
                       .uuid = before[i].uuid,
                       .name = before[i].name,
                       .bytes = from - to});
    }
  }
  return freed;
}

}  // namespace vramscope::cli
