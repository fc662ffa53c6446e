// SPDX-License-Identifier: Apache-2.0
#include "metrics/collector.h"

#include <fmt/core.h>

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "pipeline/console.h"
#include "pipeline/live_recordings.h"
#include "pipeline/open_recording.h"
#include "query/history/metrics.h"
#include "tables/row_of.h"

namespace vramscope::cli {
namespace {

constexpr size_t kLongestCommand = 160;
constexpr size_t kMostNotes = 100;

std::string GpuText(const tables::DeviceRow& device) {
  if (device.kind == tables::DeviceKind::kGpu)
    return std::to_string(device.index);
  return device.kind == tables::DeviceKind::kHost ? "host" : "cpu";
}

// The samples of one recording. Processes that have ended have none.
class RecordingSamples {
 public:
  RecordingSamples(const tables::Recording& recording,
                   const std::string& live_directory,
                   Exposition* out)
      : recording_(recording),
        tables_(recording.tables()),
        running_(recording, live_directory),
        out_(*out) {}

  void Add(const query::Metrics& metrics) {
    for (const query::AccountMetrics& account : metrics.accounts) {
      if (running_.Has(account.process))
        AddAccount(account);
      const auto residual = metrics.residual_bytes.find(account.device);
      if (running_.Has(account.process) && residual != metrics.residual_bytes.end())
        out_.AddWorst(Metric::kResidual, LabelsOf(account.device), residual->second);
    }
    for (uint32_t i = 1; i < tables_.processes.size(); ++i) {
      if (running_.Has(tables::ProcessId{i}))
        AddProcess(tables::ProcessId{i}, metrics);
    }
  }

 private:
  std::string PidText(tables::ProcessId process) const {
    return std::to_string(RowOf(tables_.processes, process).pid);
  }

  Labels LabelsOf(tables::DeviceId id) const {
    const tables::DeviceRow& device = RowOf(tables_.devices, id);
    return {{"gpu", GpuText(device)}, {"uuid", std::string(recording_.string(device.uuid))}};
  }

  void AddAccount(const query::AccountMetrics& account) {
    Labels labels = LabelsOf(account.device);
    labels.emplace_back("pid", PidText(account.process));
    out_.Add(Metric::kProcessPeak, labels, account.peak_bytes);
    out_.Add(Metric::kReserved, labels, account.reserved_bytes);
    if (account.failures)
      out_.Add(Metric::kFailures, labels, *account.failures);
    if (account.allocations) {
      out_.Add(Metric::kAllocations, labels, *account.allocations);
      out_.Add(Metric::kAllocatedBytes, labels, *account.allocated_bytes);
    }
    for (const query::CategoryMetrics& category : account.categories) {
      Labels own = labels;
      own.emplace_back("category", format::CategoryName(category.category));
      out_.Add(Metric::kLive, own, category.live_bytes);
      out_.Add(Metric::kCategoryPeak, own, category.peak_bytes);
      if (category.growth)
        out_.Add(Metric::kGrowth, own, *category.growth);
    }
  }

  void AddProcess(tables::ProcessId process, const query::Metrics& metrics) {
    const tables::ProcessRow& row = RowOf(tables_.processes, process);
    const std::string pid = PidText(process);
    out_.AddInfo(
        Metric::kProcessInfo,
        {{"pid", pid},
         {"run", tables_.session.name},
         {"rank", row.rank < 0 ? "" : std::to_string(row.rank)},
         {"command", std::string(recording_.string(row.command).substr(0, kLongestCommand))}});
    if (const auto found = metrics.iterations.find(process); found != metrics.iterations.end())
      out_.Add(Metric::kIterations, {{"pid", pid}}, found->second);
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  const RunningProcesses running_;
  Exposition& out_;
};

}  // namespace

util::Result<Collector> Collector::Make(const std::vector<std::string>& what) {
  VRAMSCOPE_ASSIGN_OR_RETURN(LiveRecordings recordings, LiveRecordings::Make(what));
  Collector self(std::move(recordings));
  auto nvml = Nvml::Load();
  if (nvml)
    self.nvml_ = std::move(*nvml);
  else
    Note("no metrics of GPUs: " + nvml.status().message());
  return self;
}

util::Status Collector::AddRecording(const std::string& live_directory, Exposition* out) const {
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto recording, OpenRecording(live_directory));
  VRAMSCOPE_ASSIGN_OR_RETURN(const query::Metrics metrics, query::MakeMetrics(*recording));
  RecordingSamples(*recording, live_directory, out).Add(metrics);
  return {};
}

void Collector::AddRecordings(Exposition* out) {
  uint64_t read = 0;
  uint64_t unread = 0;
  std::vector<std::string> ended;
  const std::vector<std::string> recordings = recordings_.Find(&ended);
  for (const std::string& directory : ended)
    NoteOnce(directory + ": nothing records into it: no metrics of it");
  for (const std::string& directory : recordings) {
    const util::Status added = AddRecordingSafely(directory, out);
    // A recording that has just ended is not an error.
    if (!added.ok() && !IsRecorded(directory))
      continue;
    ++(added.ok() ? read : unread);
    if (!added.ok())
      NoteOnce(added.message());
  }
  out->Add(Metric::kRecordings, {}, read);
  out->Add(Metric::kUnread, {}, unread);
}

util::Status Collector::AddRecordingSafely(const std::string& live_directory,
                                           Exposition* out) const {
  try {
    return AddRecording(live_directory, out);
  } catch (const std::exception& error) {
    return util::Status::Error(fmt::format("{}: cannot be read: {}", live_directory, error.what()));
  }
}

void Collector::AddGpus(Exposition* out) {
  const std::vector<GpuMonitor::Gpu>& gpus = nvml_->gpus();
  std::vector<NvmlProcess> processes;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Labels labels = {{"gpu", std::to_string(gpus[i].index)}, {"uuid", gpus[i].uuid}};
    Labels info = labels;
    info.emplace_back("name", gpus[i].name);
    out->AddInfo(Metric::kGpuInfo, info);
    out->Add(Metric::kGpuSize, labels, gpus[i].total_bytes);
    if (const std::optional<NvmlMemory> memory = nvml_->ReadMemory(i)) {
      out->Add(Metric::kGpuUsed, labels, memory->used_bytes);
      out->Add(Metric::kGpuReserved, labels, memory->reserved_bytes);
    }
    if (!nvml_->ReadProcesses(i, &processes))
      continue;
    for (const NvmlProcess& process : processes) {
      Labels own = labels;
      own.emplace_back("pid", std::to_string(process.pid));
      out->Add(Metric::kGpuProcess, own, process.used_bytes);
    }
  }
}

void Collector::NoteOnce(const std::string& message) {
  // The messages of a damaged recording may differ without end.
  if (noted_.size() < kMostNotes && noted_.insert(message).second)
    Note(message);
}

std::string Collector::Collect() {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  const Clock::time_point began = Clock::now();
  Exposition out;
  out.Add(Metric::kReadAt, {},
          Seconds(std::chrono::system_clock::now().time_since_epoch()).count());
  if (nvml_ != nullptr)
    AddGpus(&out);
  AddRecordings(&out);
  out.Add(Metric::kReadSeconds, {}, Seconds(Clock::now() - began).count());
  return out.Text();
}

}  // namespace vramscope::cli
