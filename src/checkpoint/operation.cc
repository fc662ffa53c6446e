// SPDX-License-Identifier: Apache-2.0

#include "checkpoint/operation.h"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "format/records.h"
#include "pipeline/console.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "record/live_file_writer.h"
#include "util/json.h"
#include "util/owned_file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

constexpr std::chrono::milliseconds kLookEvery{20};
// NVML takes locks that the driver's own work needs.
constexpr std::chrono::milliseconds kShowEvery{250};
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

volatile sig_atomic_t g_interrupted = 0;
struct sigaction g_before[std::size(kSignals)];

void Remember(int) {
  g_interrupted = 1;
}

std::string Sentence(const Target& target, const Outcome& outcome) {
  // Without NVML the amount is unknown.
  const std::string amount = outcome.bytes != 0
                                 ? util::FormatBytes(outcome.bytes) + " of device memory"
                                 : "its device memory";
  return fmt::format("{} {} {}, in {}", NameOf(target), outcome.verb, amount,
                     util::FormatDuration(outcome.duration_ns));
}

}  // namespace

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

util::Result<Access> OpenAccess(const Target& target) {
  Access access;
  std::string version;
  if (util::Result<std::unique_ptr<Nvml>> nvml = Nvml::Load(); nvml) {
    access.nvml = std::move(*nvml);
    version = access.nvml->DriverVersion();
  }
  util::Result<std::unique_ptr<CheckpointDriver>> driver = CheckpointDriver::Load(version);
  if (!driver)
    return driver.status();
  access.driver = std::move(*driver);
  util::Result<std::unique_ptr<StateFile>> file = StateFile::Open(target.pid);
  if (!file)
    return file.status();
  access.file = std::move(*file);
  if (const DriverAnswer answer = access.driver->GetState(target.pid, &access.state);
      !answer.ok()) {
    return util::Status::Error(
        IsAlive(target) ? fmt::format("the driver does not list {} as a CUDA process: {}",
                                      NameOf(target), answer.Text())
                        : NameOf(target) + " has ended");
  }
  return access;
}

HeldInterrupts::HeldInterrupts() {
  struct sigaction action {};
  action.sa_handler = Remember;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i], &action, &g_before[i]);
}

HeldInterrupts::~HeldInterrupts() {
  for (size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i], &g_before[i], nullptr);
}

bool HeldInterrupts::Came() {
  return g_interrupted != 0;
}

DriverAnswer RunShown(const std::string& what,
                      const std::function<DriverAnswer()>& call,
                      const std::function<double()>& share,
                      const std::function<void()>& on_interrupt) {
  // The thread of the call is not to be disturbed by signals.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::future<DriverAnswer> answer = std::async(std::launch::async, call);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  Progress progress(what);
  const bool shown = isatty(STDERR_FILENO) == 1;
  auto next = std::chrono::steady_clock::now();
  bool told = false;
  while (answer.wait_for(kLookEvery) != std::future_status::ready) {
    if (shown && std::chrono::steady_clock::now() >= next) {
      progress.Update(share());
      next = std::chrono::steady_clock::now() + kShowEvery;
    }
    if (!told && on_interrupt && HeldInterrupts::Came()) {
      told = true;
      on_interrupt();
    }
  }
  return answer.get();
}

std::string NameOf(const Target& target) {
  return fmt::format("process {} ({})", target.pid, target.name);
}

std::string FailedText(const Target& target) {
  return fmt::format(
      "the driver reports {} as failed: its CUDA calls do not return, and neither yield nor resume "
      "can help it: end it with `kill -9 {}` and start it again",
      NameOf(target), target.pid);
}

void NoteUnstoppable(const Target& target) {
  Note(fmt::format(
      "the driver is moving the memory of {} and cannot be interrupted: the command ends when the "
      "move is complete",
      NameOf(target)));
}

std::string CheckPid(const std::string& text) {
  if (util::WholeNumber<int>(text).value_or(0) > 0)
    return "";
  return fmt::format("'{}' is not a process ID", text);
}

void NoteInRecording(const std::string& live_directory,
                     const Target& target,
                     const std::vector<TimedStep>& steps,
                     const Outcome& outcome) {
  if (live_directory.empty() || !IsLiveDirectory(live_directory))
    return;
  util::Result<std::unique_ptr<LiveFileWriter>> file =
      LiveFileWriter::Create(util::CreateFile(fmt::format("{}/yield-{}-{}.vrl", live_directory,
                                                          target.pid, base::MonotonicNs())),
                             {});
  if (!file)
    return;
  for (const TimedStep& step : steps) {
    (*file)->Write(format::Checkpoint{.begin = static_cast<uint64_t>(step.begin_ns),
                                      .end = static_cast<uint64_t>(step.end_ns),
                                      .kind = static_cast<uint64_t>(step.kind),
                                      .pid = static_cast<uint64_t>(target.pid)});
  }
  const std::string_view key =
      steps.front().kind == format::CheckpointKind::kLock ? "yield" : "resume";
  const std::string value = Sentence(target, outcome);
  (*file)->Write(
      format::Runtime{.key = {key.data(), key.size()}, .value = {value.data(), value.size()}});
  (*file)->Close();
}

bool PrintOutcome(const Target& target, const Outcome& outcome, bool json) {
  std::string text;
  if (json) {
    util::JsonWriter writer(&text);
    writer.BeginObject();
    writer.Field("pid", target.pid);
    writer.Field("bytes", outcome.bytes);
    writer.Field("seconds", static_cast<double>(outcome.duration_ns) / 1e9);
    writer.EndObject();
    writer.Finish();
    text += '\n';
  } else {
    text = Sentence(target, outcome) + "\n";
    if (outcome.gpus.size() > 1) {
      for (const FreedOnGpu& gpu : outcome.gpus)
        text +=
            fmt::format("  GPU {} ({}): {}\n", gpu.index, gpu.name, util::FormatBytes(gpu.bytes));
    }
  }
  const util::Status status = PrintOut(text);
  if (!status.ok())
    Fail(status.message());
  return status.ok();
}

}  // namespace vramscope::cli
