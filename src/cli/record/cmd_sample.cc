// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "record/child_process.h"
#include "record/environment.h"
#include "record/recording_place.h"
#include "record/sample/nvml.h"
#include "record/sample/sampler.h"
#include "record/watch/onlooker.h"
#include "util/file.h"
#include "util/owned_file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

constexpr int64_t kShortestNs = 100'000;
constexpr int64_t kLongestNs = 60'000'000'000;

struct SampleArguments {
  std::string period = "1ms";
  std::vector<int32_t> devices;
  pid_t pid = 0;
  std::string output;
  std::string name;
  ReportOptions report;
  std::vector<std::string> command;
};

// What `vramscope sample` does, from the checks to the report.
class Sampling {
 public:
  explicit Sampling(SampleArguments arguments) : arguments_(std::move(arguments)) {}
  // The exit status.
  int Execute();

 private:
  util::Status Check();
  util::Status OpenNvml();
  // Up to the first samples: what is in use before anything begins.
  util::Status Begin(pid_t pid);
  void End(pid_t pid, uint64_t wait_status);
  int SampleCommand();
  int SampleProcess();
  void WriteNote(const std::string& key, const std::string& value);

  SampleArguments arguments_;
  SamplerOptions options_;
  Program program_;
  RecordingPlace place_;
  std::unique_ptr<Nvml> nvml_;
  std::unique_ptr<SampledProcesses> processes_;
  std::unique_ptr<Sampler> sampler_;
};

util::Status Sampling::Check() {
  VRAMSCOPE_ASSIGN_OR_RETURN(options_.period_ns,
                             ParsePeriod("-i", arguments_.period, kShortestNs, kLongestNs));
  if (arguments_.name.empty())
    arguments_.name = NameOfCommand(arguments_.command);
  VRAMSCOPE_RETURN_IF_ERROR(place_.Choose(arguments_.output));
  if (!arguments_.report.html.empty())
    return CheckReportOutput(arguments_.report.html, place_.output());
  return {};
}

util::Status Sampling::OpenNvml() {
  util::Result<std::unique_ptr<Nvml>> nvml = Nvml::Load();
  if (!nvml) {
    return util::Status::Error(
        fmt::format("nothing to sample: {}: see `vramscope doctor`", nvml.status().message()));
  }
  nvml_ = std::move(*nvml);
  const std::vector<GpuMonitor::Gpu>& gpus = nvml_->gpus();
  if (gpus.empty())
    return util::Status::Error("nothing to sample: NVML lists no GPU");
  for (const int32_t index : arguments_.devices) {
    const auto found =
        std::find_if(gpus.begin(), gpus.end(), [&](const auto& gpu) { return gpu.index == index; });
    if (found == gpus.end()) {
      std::string known;
      for (const GpuMonitor::Gpu& gpu : gpus)
        known += (known.empty() ? "" : ", ") + std::to_string(gpu.index);
      return util::Status::Error(
          fmt::format("--device {}: NVML has no such GPU: use {}", index, known));
    }
    const auto position = static_cast<size_t>(found - gpus.begin());
    if (std::find(options_.gpus.begin(), options_.gpus.end(), position) == options_.gpus.end())
      options_.gpus.push_back(position);
  }
  return {};
}

void Sampling::WriteNote(const std::string& key, const std::string& value) {
  place_.file().Write(
      format::Runtime{.key = {key.data(), key.size()}, .value = {value.data(), value.size()}});
}

util::Status Sampling::Begin(pid_t pid) {
  VRAMSCOPE_RETURN_IF_ERROR(place_.Open({arguments_.name, arguments_.command, ""}, pid));
  WriteNote("sampling period", util::FormatDuration(options_.period_ns));
  processes_ =
      std::make_unique<SampledProcesses>(place_.file(), pid, arguments_.command, program_.path);
  options_.processes = processes_.get();
  sampler_ = std::make_unique<Sampler>(*nvml_, place_.file(), options_);
  sampler_->Start();
  return {};
}

// `wait_status`: format::kStatusNotKnown if it still runs, or if only its parent knows.
void Sampling::End(pid_t pid, uint64_t wait_status) {
  const auto ended_ns = static_cast<uint64_t>(base::MonotonicNs());
  sampler_->Stop();
  if (!sampler_->failure().empty())
    Note(fmt::format("sampling ended early: {}", sampler_->failure()));
  const SamplingPace& pace = sampler_->pace();
  WriteNote("readings", fmt::format("{}; {} later than their time by a period or more, {} left "
                                    "out; the latest by {}",
                                    pace.readings, pace.late, pace.left_out,
                                    util::FormatDuration(pace.latest_ns)));
  format::ProcessExit record;
  record.time = ended_ns;
  record.pid = static_cast<uint64_t>(pid);
  record.status = wait_status;
  place_.file().Write(record);
  place_.CloseFile();
  for (const std::string& note : place_.notes())
    Note(note);
}

int Sampling::SampleCommand() {
  util::Result<std::unique_ptr<ChildProcess>> child =
      ChildProcess::Fork(program_.path, arguments_.command);
  if (!child)
    return Fail(child.status().message());
  // Only after the fork: the program must not inherit what NVML opens.
  if (const util::Status status = OpenNvml(); !status.ok())
    return Fail(status.message());
  const pid_t pid = (*child)->pid();
  if (const util::Status status = Begin(pid); !status.ok())
    return Fail(status.message());
  if (const int error = (*child)->Start({}); error != 0) {
    sampler_.reset();
    place_.Abandon();
    Fail(fmt::format("cannot start {}: {}", program_.path, std::strerror(error)));
    return error == ENOENT ? kExitNotFound : kExitNotExecutable;
  }
  const int wait_status = (*child)->Wait();
  End(pid, static_cast<uint64_t>(wait_status));
  (*child)->ReleaseSignals();
  place_.Finish(arguments_.report, ExitStatusOf(wait_status));
  return ExitStatusOf(wait_status);
}

int Sampling::SampleProcess() {
  const pid_t pid = arguments_.pid;
  util::Result<std::unique_ptr<Onlooker>> onlooker = Onlooker::Open(pid);
  if (!onlooker)
    return Fail("--pid " + onlooker.status().message());
  if (const util::Status status = OpenNvml(); !status.ok())
    return Fail(status.message());
  program_.path = util::ReadProcLink(pid, "exe");
  if (const util::Status status = Begin(pid); !status.ok())
    return Fail(status.message());
  const bool has_ended = (*onlooker)->Wait({}) == Onlooker::Seen::kEnd;
  End(pid, format::kStatusNotKnown);
  onlooker->reset();
  if (!has_ended)
    Note(fmt::format("process {} continues", pid));
  return place_.Finish(arguments_.report, kExitError) ? kExitOk : kExitError;
}

int Sampling::Execute() {
  if (arguments_.pid != 0) {
    arguments_.command = CommandLineOf(arguments_.pid);
    if (arguments_.command.empty())
      arguments_.command.push_back(util::ProcCommand(arguments_.pid));
  } else {
    program_ = FindProgram(arguments_.command.front());
    if (program_.exit_status != 0) {
      Fail(program_.error);
      return program_.exit_status;
    }
  }
  if (const util::Status status = Check(); !status.ok())
    return Fail(status.message());
  return arguments_.pid != 0 ? SampleProcess() : SampleCommand();
}

// CLI11 knows nothing of the command that was cut off.
class SampleFormatter : public HelpFormatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: vramscope sample [OPTIONS] -- COMMAND [ARG...]\n"
           "       vramscope sample [OPTIONS] --pid PID\n";
  }
};

}  // namespace

void RegisterSample(CLI::App& app, int* exit_code, std::vector<std::string> command) {
  CLI::App* const sample =
      app.add_subcommand("sample", "Sample a program's GPU memory with NVML, from outside");
  sample->formatter(std::make_shared<SampleFormatter>());
  auto arguments = std::make_shared<SampleArguments>();
  arguments->command = std::move(command);
  sample
      ->add_option("-i", arguments->period,
                   "Read each GPU every PERIOD: 500us, 1ms, 0.1s (default: 1ms)")
      ->option_text("PERIOD");
  sample
      ->add_option("--device", arguments->devices,
                   "Sample only this GPU (its number in nvidia-smi); can be repeated")
      ->check(CheckCount)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->option_text("N");
  CLI::Option* const pid =
      sample
          ->add_option(
              "--pid", arguments->pid,
              "Sample a running process until it ends or until Ctrl-C; the process is not changed")
          ->check(CheckCount)
          ->option_text("PID");
  sample
      ->add_option("-o", arguments->output,
                   "Write the recording to FILE (default: COMMAND-PID.vram)")
      ->option_text("FILE");
  sample->add_option("--name", arguments->name, "Name the recording (default: the command's name)")
      ->option_text("NAME");
  sample->add_option("--html", arguments->report.html, "Also write the report as an HTML page")
      ->option_text("FILE");
  sample->add_flag("--no-report", arguments->report.no_report,
                   "Print only the name of the recording");
  sample->footer(
      "`sample` loads nothing into the program. It passes signals to the command and\n"
      "exits with its status. Memory that is allocated and freed between two readings\n"
      "is missing; `vramscope run` records every allocation.\n\n"
      "Example: vramscope sample -o solver.vram -- ./solver");
  sample->prefix_command();
  sample->callback([sample, arguments, pid, exit_code] {
    const std::vector<std::string> rest = sample->remaining();
    if (!rest.empty() && (!arguments->command.empty() || rest.front().starts_with("-")))
      throw CLI::ExtrasError("sample", rest);
    if (arguments->command.empty())
      arguments->command = rest;
    const bool has_command = !arguments->command.empty() && !arguments->command.front().empty();
    if (has_command == (pid->count() > 0)) {
      *exit_code = Fail(has_command ? "a command and --pid are given: leave one out"
                                    : "no command given: put it after `--`, as in `vramscope "
                                      "sample -- ./solver`, or use --pid PID");
      return;
    }
    *exit_code = Sampling(*arguments).Execute();
  });
}

}  // namespace vramscope::cli
