// SPDX-License-Identifier: Apache-2.0
#include "top/watch.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "pipeline/survivors.h"
#include "record/sample/sampler.h"

namespace vramscope::cli {
namespace {

constexpr int64_t kShowsEndedNs = 5'000'000'000;

std::string OwnerOf(uint32_t pid) {
  struct stat info {};
  if (stat(fmt::format("/proc/{}", pid).c_str(), &info) != 0)
    return "";
  const passwd* const user = getpwuid(info.st_uid);
  return user != nullptr ? user->pw_name : std::to_string(info.st_uid);
}

}  // namespace

const TopWatch::Identity& TopWatch::IdentityOf(uint32_t pid, const std::string& command) {
  const auto [known, is_new] = identities_.try_emplace(pid);
  if (is_new) {
    std::string line = fmt::format("{}", fmt::join(CommandLineOf(static_cast<pid_t>(pid)), " "));
    known->second = {OwnerOf(pid), line.empty() ? command : std::move(line)};
  }
  return known->second;
}

TopWatch::Row& TopWatch::RowOf(uint32_t pid,
                               const std::string& device,
                               const std::string& command) {
  Row& row = rows_[{pid, device}];
  const Identity& identity = IdentityOf(pid, command);
  row.process.pid = pid;
  row.process.device = device;
  row.process.user = identity.user;
  row.process.command = identity.command;
  return row;
}

// NVML's number where it knows the GPU.
std::string TopWatch::DeviceOf(const RecordedProcess& process) const {
  if (!process.has_device)
    return "";
  if (process.kind != tables::DeviceKind::kGpu)
    return process.kind == tables::DeviceKind::kHost ? "host" : "cpu";
  if (monitor_ != nullptr) {
    for (const GpuMonitor::Gpu& gpu : monitor_->gpus()) {
      if (!process.uuid.empty() && gpu.uuid == process.uuid)
        return std::to_string(gpu.index);
    }
  }
  return std::to_string(process.index);
}

void TopWatch::AddNvml(const RecordedProcesses& recorded, TopModel* model) {
  const auto is_shown = [&](uint32_t pid) {
    if (target_.HasUnrecorded())
      return target_.pid() == 0 || target_.pid() == pid;
    return std::any_of(recorded.processes.begin(), recorded.processes.end(),
                       [&](const RecordedProcess& process) { return process.pid == pid; });
  };
  std::vector<NvmlProcess> processes;
  for (size_t i = 0; i < monitor_->gpus().size(); ++i) {
    const GpuMonitor::Gpu& gpu = monitor_->gpus()[i];
    TopGpu& out = model->gpus.emplace_back(
        TopGpu{gpu.index, gpu.uuid, gpu.name, gpu.total_bytes, std::nullopt});
    if (const std::optional<NvmlMemory> memory = monitor_->ReadMemory(i))
      out.used_bytes = memory->used_bytes;
    if (!monitor_->ReadProcesses(i, &processes))
      continue;
    for (const NvmlProcess& process : processes) {
      if (is_shown(process.pid))
        RowOf(process.pid, std::to_string(gpu.index), "").process.nvml_bytes = process.used_bytes;
    }
  }
}

TopModel TopWatch::Look(const RecordedProcesses& recorded) {
  using Seconds = std::chrono::duration<double>;
  TopModel model;
  model.now_ns = base::MonotonicNs();
  model.unix_seconds = Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
  model.no_nvml = no_nvml_;
  model.notes = recorded.notes;
  std::map<Key, TopProcess> before;
  for (auto& [key, row] : rows_) {
    before.emplace(key, row.process);
    row.process.nvml_bytes.reset();
    row.process.details.reset();
  }
  if (monitor_ != nullptr)
    AddNvml(recorded, &model);
  for (const RecordedProcess& process : recorded.processes) {
    const std::string device = DeviceOf(process);
    // A reading may be older than the end of a process.
    if (rows_.contains({process.pid, device}) || IsRunning(static_cast<pid_t>(process.pid)))
      RowOf(process.pid, device, process.command).process.details = process.details;
  }
  const bool has_target = std::any_of(rows_.begin(), rows_.end(), [&](const auto& row) {
    return row.first.first == target_.pid() && !row.first.second.empty();
  });
  if (target_.pid() != 0 && has_target)
    rows_.erase({target_.pid(), ""});
  else if (target_.pid() != 0 && IsRunning(static_cast<pid_t>(target_.pid())))
    RowOf(target_.pid(), "", "");
  else if (target_.pid() != 0)
    model.notes.push_back(fmt::format("process {} has ended", target_.pid()));
  for (auto& [key, row] : rows_) {
    if (IsRunning(static_cast<pid_t>(key.first)))
      continue;
    // Its last figures.
    if (const auto last = before.find(key); last != before.end())
      row.process = last->second;
    row.process.ended = true;
    row.ended_ns = row.ended_ns == 0 ? model.now_ns : row.ended_ns;
  }
  std::erase_if(rows_, [&](const auto& item) {
    const auto& [key, row] = item;
    if (row.process.ended)
      return model.now_ns - row.ended_ns > kShowsEndedNs;
    // It has left the GPU, or its recording has ended.
    const bool is_target = key.first == target_.pid() && key.second.empty();
    return !row.process.nvml_bytes && row.process.details == nullptr && !is_target;
  });
  std::erase_if(identities_, [&](const auto& identity) {
    return std::none_of(rows_.begin(), rows_.end(),
                        [&](const auto& row) { return row.first.first == identity.first; });
  });
  for (auto& [key, row] : rows_) {
    TopProcess& process = row.process;
    if (!process.ended && !process.device.empty()) {
      const std::optional<double> growth = row.history.Add(model.now_ns, process.bytes());
      process.growth =
          process.details != nullptr && process.details->growth ? process.details->growth : growth;
    }
    model.processes.push_back(process);
  }
  return model;
}

}  // namespace vramscope::cli
