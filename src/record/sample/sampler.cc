// SPDX-License-Identifier: Apache-2.0

#include "record/sample/sampler.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "util/file.h"

namespace vramscope::cli {
namespace {

constexpr size_t kMostCommandBytes = 4096;  // a record must fit into a chunk

constexpr unsigned long kTimerSlackNs = 1;
constexpr int64_t kKeepEveryNs = 100'000'000;
constexpr int64_t kProcessPeriodNs = 1'000'000'000;
constexpr int64_t kProcessMinGapNs = 200'000'000;
constexpr int64_t kProcessGapPerDuration = 400;
// A context, or a large segment: what a per-process figure is wanted for soon.
constexpr uint64_t kLargeMoveBytes = 32 << 20;

uint64_t Now() {
  return static_cast<uint64_t>(base::MonotonicNs());
}

}  // namespace

std::vector<std::string> CommandLineOf(pid_t pid) {
  std::vector<std::string> words;
  const std::optional<std::string> text = util::ReadProc(pid, "cmdline");
  if (!text)
    return words;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\0', begin), text->size());
    words.push_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

SampledProcesses::SampledProcesses(LiveFileWriter& file,
                                   pid_t root,
                                   const std::vector<std::string>& command,
                                   const std::string& executable)
    : file_(file), root_(root) {
  ProcessStat stat;
  if (ReadProcessStat(root, &stat))
    known_.emplace(root, stat.start_ticks);
  Write(stat, root, static_cast<uint64_t>(base::MonotonicNs()), command, executable);
}

void SampledProcesses::OnListed(pid_t pid, uint64_t time_ns) {
  ProcessStat stat;
  if (!ReadProcessStat(pid, &stat) || known_.contains({pid, stat.start_ticks}) ||
      !IsBelow(pid, root_))
    return;
  known_.emplace(pid, stat.start_ticks);
  Write(stat, pid, time_ns, CommandLineOf(pid), util::ReadProcLink(pid, "exe"));
}

void SampledProcesses::Write(const ProcessStat& stat,
                             pid_t pid,
                             uint64_t time_ns,
                             const std::vector<std::string>& command,
                             const std::string& executable) {
  std::string text;
  for (const std::string& word : command)
    text += (text.empty() ? "" : " ") + word;
  text.resize(std::min(text.size(), kMostCommandBytes));
  format::SampledProcess record;
  record.time = time_ns;
  record.pid = static_cast<uint64_t>(pid);
  record.parent_pid = static_cast<uint64_t>(stat.parent);
  record.command = {text.data(), text.size()};
  record.executable = {executable.data(), executable.size()};
  file_.Write(record);
}

bool ProcessQueryPacer::IsDue(int64_t now_ns, uint64_t device_used_bytes) const {
  if (!queried_)
    return true;
  const int64_t since_ns = now_ns - last_ns_;
  if (since_ns < min_gap_ns_)
    return false;
  if (since_ns >= kProcessPeriodNs)
    return true;
  const uint64_t moved_bytes =
      std::max(device_used_bytes, used_bytes_) - std::min(device_used_bytes, used_bytes_);
  return moved_bytes >= kLargeMoveBytes;
}

void ProcessQueryPacer::Queried(int64_t now_ns, int64_t duration_ns, uint64_t device_used_bytes) {
  queried_ = true;
  last_ns_ = now_ns;
  min_gap_ns_ = std::max(kProcessMinGapNs, duration_ns * kProcessGapPerDuration);
  used_bytes_ = device_used_bytes;
}

void SamplingPace::Add(int64_t behind_ns, int64_t period_ns) {
  ++readings;
  late += behind_ns >= period_ns ? 1 : 0;
  latest_ns = std::max(latest_ns, behind_ns);
}

// Missed times are skipped: otherwise a delayed thread would take its readings in a row.
uint64_t SamplingPace::Next(int64_t behind_ns, int64_t period_ns) {
  if (behind_ns <= period_ns)
    return 1;
  const auto passed = static_cast<uint64_t>((behind_ns - 1) / period_ns);
  left_out += passed;
  return passed + 1;
}

Sampler::Sampler(GpuMonitor& monitor, LiveFileWriter& file, SamplerOptions options)
    : monitor_(monitor),
      file_(file),
      options_(std::move(options)),
      gpus_(options_.gpus),
      filters_(monitor.gpus().size(), SampleFilter(kKeepEveryNs)),
      pacers_(monitor.gpus().size()),
      listed_(monitor.gpus().size()) {
  for (size_t gpu = 0; options_.gpus.empty() && gpu < monitor.gpus().size(); ++gpu)
    gpus_.push_back(gpu);
}

Sampler::~Sampler() {
  Stop();
}

void Sampler::Start() {
  for (const size_t number : gpus_) {
    const GpuMonitor::Gpu& gpu = monitor_.gpus()[number];
    format::Device record;
    record.device = gpu.index;
    record.total_bytes = gpu.total_bytes;
    record.uuid = {gpu.uuid.data(), gpu.uuid.size()};
    record.name = {gpu.name.data(), gpu.name.size()};
    file_.Write(record);
  }
  if (gpus_.empty())
    return;
  // The processes' figures at the first sample.
  for (const size_t gpu : gpus_)
    SampleProcesses(gpu);
  SampleDevices();
  SampleDevices();
  for (const size_t gpu : gpus_) {
    filters_[gpu].Flush([this](const format::DeviceSample& sample) { file_.Write(sample); });
  }
  worker_.Start([this] { Loop(); });
}

void Sampler::Stop() {
  if (!worker_.IsStarted())
    return;
  worker_.Stop();
  SampleDevices();
  for (SampleFilter& filter : filters_) {
    filter.Flush([this](const format::DeviceSample& sample) { file_.Write(sample); });
  }
}

// The times are fixed from the first on, so that what one reading takes does not move the others.
void Sampler::Loop() {
  // The kernel may wake a thread 50 us late to wake several at once; a period can be shorter.
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  const std::chrono::nanoseconds period(options_.period_ns);
  auto next = std::chrono::steady_clock::now();
  const auto behind_ns = [&next] { return (std::chrono::steady_clock::now() - next).count(); };
  while (!worker_.stop()) {
    const int64_t late_ns = behind_ns();
    pace_.Add(late_ns, options_.period_ns);
    SampleDevices(late_ns >= options_.period_ns);
    next += period * pace_.Next(behind_ns(), options_.period_ns);
    worker_.RestUntil(next);
  }
}

void Sampler::SampleDevices(bool late) {
  const auto write = [this](const format::DeviceSample& due) { file_.Write(due); };
  for (const size_t gpu : gpus_) {
    format::DeviceSample sample;
    sample.device = monitor_.gpus()[gpu].index;
    sample.begin = Now();
    const std::optional<NvmlMemory> memory = monitor_.ReadMemory(gpu);
    sample.end = Now();
    if (!memory)
      continue;
    sample.used = memory->used_bytes;
    sample.free = memory->free_bytes;
    sample.reserved = memory->reserved_bytes;
    sample.total = memory->total_bytes;
    if (late)
      filters_[gpu].AddLate(sample, write);
    else
      filters_[gpu].Add(sample, write);
    if (pacers_[gpu].IsDue(static_cast<int64_t>(sample.end), memory->used_bytes)) {
      SampleProcesses(gpu);
      pacers_[gpu].Queried(static_cast<int64_t>(sample.end),
                           base::MonotonicNs() - static_cast<int64_t>(sample.end),
                           memory->used_bytes);
    }
  }
}

void Sampler::SampleProcesses(size_t gpu) {
  const uint64_t begin = Now();
  if (!monitor_.ReadProcesses(gpu, &processes_))
    return;
  const uint64_t end = Now();
  std::vector<pid_t> pids;
  for (const NvmlProcess& process : processes_) {
    pids.push_back(static_cast<pid_t>(process.pid));
    if (options_.processes != nullptr)
      options_.processes->OnListed(pids.back(), begin);
    WriteProcess(gpu, begin, end, process);
  }
  // A live process that is not listed any more has nothing on the device: the driver may have moved
  // it all to host memory. Without the probe this is the only sign that it has ended.
  for (const pid_t pid : listed_[gpu]) {
    if (std::find(pids.begin(), pids.end(), pid) == pids.end() &&
        (options_.processes != nullptr || IsRunning(pid)))
      WriteProcess(gpu, begin, end, {.pid = static_cast<uint32_t>(pid), .used_bytes = 0});
  }
  listed_[gpu] = pids;
  if (options_.watch != nullptr)
    options_.watch->SawOnGpu(gpu, std::move(pids));
}

void Sampler::WriteProcess(size_t gpu, uint64_t begin, uint64_t end, const NvmlProcess& process) {
  format::ProcessSample sample;
  sample.begin = begin;
  sample.end = end;
  sample.device = monitor_.gpus()[gpu].index;
  sample.pid = process.pid;
  sample.used = process.used_bytes;
  file_.Write(sample);
}

}  // namespace vramscope::cli
