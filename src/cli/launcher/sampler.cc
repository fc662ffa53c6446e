// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher/sampler.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/clock.h"

namespace vramscope::cli {
namespace {

constexpr std::chrono::milliseconds kDevicePeriod{10};
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

Sampler::Sampler(GpuMonitor& monitor, LiveFileWriter& file, ProcessWatch* watch)
    : monitor_(monitor),
      file_(file),
      watch_(watch),
      filters_(monitor.gpus().size(), SampleFilter(kKeepEveryNs)),
      pacers_(monitor.gpus().size()),
      listed_(monitor.gpus().size()) {}

Sampler::~Sampler() {
  Stop();
}

void Sampler::Start() {
  for (const GpuMonitor::Gpu& gpu : monitor_.gpus()) {
    format::Device record;
    record.device = gpu.index;
    record.total_bytes = gpu.total_bytes;
    record.uuid = {gpu.uuid.data(), gpu.uuid.size()};
    record.name = {gpu.name.data(), gpu.name.size()};
    file_.Write(record);
  }
  if (monitor_.gpus().empty())
    return;
  SampleDevices();
  SampleDevices();
  for (size_t gpu = 0; gpu < filters_.size(); ++gpu) {
    filters_[gpu].Flush([this](const format::DeviceSample& sample) { file_.Write(sample); });
  }
  worker_.Start([this] { Loop(); });
}

void Sampler::Stop() {
  if (!worker_.IsStarted())
    return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_one();
  worker_.Join();
  SampleDevices();
  for (SampleFilter& filter : filters_) {
    filter.Flush([this](const format::DeviceSample& sample) { file_.Write(sample); });
  }
}

void Sampler::Loop() {
  auto next = std::chrono::steady_clock::now();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    lock.unlock();
    SampleDevices();
    lock.lock();
    // After a long stall (a stopped job, a suspended machine) go on from now, without catching up.
    next = std::max(next + kDevicePeriod, std::chrono::steady_clock::now());
    stop_changed_.wait_until(lock, next, [this] { return stop_; });
  }
}

void Sampler::SampleDevices() {
  for (size_t gpu = 0; gpu < filters_.size(); ++gpu) {
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
    filters_[gpu].Add(sample, [this](const format::DeviceSample& due) { file_.Write(due); });
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
    WriteProcess(gpu, begin, end, process);
  }
  // One that lives and is listed no more has nothing on the device: the driver may have moved it
  // all to host memory.
  for (const pid_t pid : listed_[gpu]) {
    if (std::find(pids.begin(), pids.end(), pid) == pids.end() && IsRunning(pid))
      WriteProcess(gpu, begin, end, {.pid = static_cast<uint32_t>(pid), .used_bytes = 0});
  }
  listed_[gpu] = pids;
  if (watch_ != nullptr)
    watch_->SawOnGpu(gpu, std::move(pids));
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
