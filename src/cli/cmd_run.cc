// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/launcher/child_process.h"
#include "cli/launcher/environment.h"
#include "cli/launcher/finish.h"
#include "cli/launcher/live_file_writer.h"
#include "cli/launcher/nvml.h"
#include "cli/launcher/program.h"
#include "cli/launcher/sampler.h"
#include "cli/launcher/session.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

struct RunOptions {
  std::string output;
  std::string name;
  RecordingOptions recording;
  ReportOptions report;
  std::vector<std::string> command;
};

// One recording, from the checks to the report. What it has to say is kept for the end, when the
// program no longer writes.
class Run {
 public:
  explicit Run(RunOptions options) : options_(std::move(options)) {}
  // The exit status of `vramscope run`.
  int Execute();

 private:
  // Everything that can be found wrong before the program starts.
  util::Status Check();
  util::Status PrepareSession();
  util::Status MakeLiveDirectory();
  void StartSampling();
  void EndSampling(int wait_status);
  int Finish(int wait_status);

  RunOptions options_;
  Program program_;
  std::string probe_;
  std::string output_;  // absolute; with the program's pid once that is known
  std::string live_directory_;
  std::string probe_link_;
  std::vector<std::string> notes_;
  std::unique_ptr<ChildProcess> child_;
  std::unique_ptr<Nvml> nvml_;
  std::unique_ptr<LiveFileWriter> file_;
  std::unique_ptr<Sampler> sampler_;
};

util::Status Run::Check() {
  std::error_code error;
  if (options_.name.empty())
    options_.name = NameOfCommand(options_.command);
  if (!options_.output.empty()) {
    output_ = fs::absolute(options_.output, error).lexically_normal().string();
    VRAMSCOPE_RETURN_IF_ERROR(CheckOutput(output_));
  }
  if (!options_.report.html.empty()) {
    VRAMSCOPE_RETURN_IF_ERROR(CheckReportOutput(options_.report.html, output_));
  }
  util::Result<std::string> probe = FindProbe();
  if (!probe)
    return probe.status();
  probe_ = *probe;
  if (!SuitsPreload(probe_)) {
    util::Result<std::string> link = LinkProbe(probe_);
    if (!link)
      return link.status();
    probe_ = probe_link_ = *link;
  }
  return {};
}

util::Status Run::MakeLiveDirectory() {
  std::error_code error;
  const bool chosen = !output_.empty();
  if (!chosen) {
    std::string name = options_.name;
    std::replace(name.begin(), name.end(), '/', '_');
    output_ = (fs::current_path(error) / fmt::format("{}-{}.vram", name, child_->pid())).string();
  }
  util::Status status = CheckOutput(output_);
  if (status.ok()) {
    util::Result<std::string> live = CreateLiveDirectory(output_);
    if (live) {
      live_directory_ = *live;
      return {};
    }
    status = live.status();
  }
  if (chosen)
    return status;
  const std::string elsewhere =
      (fs::temp_directory_path(error) / fs::path(output_).filename()).string();
  VRAMSCOPE_RETURN_IF_ERROR(CheckOutput(elsewhere));
  util::Result<std::string> live = CreateLiveDirectory(elsewhere);
  if (!live)
    return live.status();
  notes_.push_back(fmt::format("this directory cannot be written: the recording is {}", elsewhere));
  output_ = elsewhere;
  live_directory_ = *live;
  return {};
}

util::Status Run::PrepareSession() {
  VRAMSCOPE_RETURN_IF_ERROR(MakeLiveDirectory());
  SessionRecord record;
  record.name = options_.name;
  record.command = options_.command;
  record.options = OptionsText(options_.recording);
  VRAMSCOPE_RETURN_IF_ERROR(WriteSessionRecord(live_directory_, record));
  util::Result<std::unique_ptr<LiveFileWriter>> file =
      LiveFileWriter::Create(live_directory_ + "/" + kLauncherFile, options_.command);
  if (!file)
    return file.status();
  file_ = std::move(*file);
  return {};
}

void Run::StartSampling() {
  if (!program_.not_recordable.empty()) {
    file_->CountLoss(format::Loss::kNotRecorded);
    notes_.push_back(
        fmt::format("{} {}: it cannot be recorded", program_.path, program_.not_recordable));
  }
  if (nvml_ == nullptr)
    return;
  sampler_ = std::make_unique<Sampler>(*nvml_, *file_);
  sampler_->Start();
}

void Run::EndSampling(int wait_status) {
  const int64_t ended_ns = base::MonotonicNs();
  if (sampler_ != nullptr)
    sampler_->Stop();
  format::ProcessExit record;
  record.time = static_cast<uint64_t>(ended_ns);
  record.pid = static_cast<uint64_t>(child_->pid());
  record.status = static_cast<uint64_t>(wait_status);
  file_->Write(record);
  file_.reset();
}

int Run::Finish(int wait_status) {
  const int exit_status = ExitStatusOf(wait_status);
  const std::vector<Recorder> recorders = RecordersThatStay(live_directory_);
  EndSampling(wait_status);
  child_->ReleaseSignals();
  for (const std::string& note : notes_)
    Note(note);
  if (!recorders.empty()) {
    Note(fmt::format("process {} ({}) goes on recording: when it has ended, `vramscope finish {}`",
                     recorders[0].pid, recorders[0].command, live_directory_));
    return exit_status;
  }
  if (!probe_link_.empty()) {
    std::error_code error;
    fs::remove_all(fs::path(probe_link_).parent_path(), error);
  }
  const util::Status status = FinishRecording(live_directory_, output_, exit_status);
  if (!status.ok()) {
    Fail(status.message());
    Note(fmt::format("the recording stays in {}: `vramscope finish {}` completes it",
                     live_directory_, live_directory_));
    return exit_status;
  }
  PrintRecording(output_, options_.report);
  return exit_status;
}

// CLI11 knows nothing of the command that was cut off.
class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: vramscope run [OPTIONS] -- COMMAND [ARG...]\n";
  }
};

int Run::Execute() {
  program_ = FindProgram(options_.command.front());
  if (program_.exit_status != 0) {
    Fail(program_.error);
    return program_.exit_status;
  }
  if (const util::Status status = Check(); !status.ok())
    return Fail(status.message());
  util::Result<std::unique_ptr<ChildProcess>> child =
      ChildProcess::Fork(program_.path, options_.command);
  if (!child)
    return Fail(child.status().message());
  child_ = std::move(*child);
  // Only after the fork: the program must not inherit what NVML opens.
  if (util::Result<std::unique_ptr<Nvml>> nvml = Nvml::Load(); nvml)
    nvml_ = std::move(*nvml);
  const int gpu_count = nvml_ != nullptr ? static_cast<int>(nvml_->gpus().size()) : -1;
  if (!HasCudaDriver(gpu_count))
    options_.recording.cpu = true;
  if (const util::Status status = PrepareSession(); !status.ok())
    return Fail(status.message());
  StartSampling();
  const int error = child_->Start(RecordingVariables(probe_, live_directory_, options_.recording));
  if (error != 0) {
    sampler_.reset();
    file_.reset();
    (void)RemoveLiveDirectory(live_directory_);
    Fail(fmt::format("cannot start {}: {}", program_.path, std::strerror(error)));
    return error == ENOENT ? kExitNotFound : kExitNotExecutable;
  }
  // From here on the name stands for this recording: until it is finished readers must find the
  // live directory, not an older file.
  unlink(output_.c_str());
  return Finish(child_->Wait());
}

}  // namespace

void RegisterRun(CLI::App& app, int* exit_code, std::vector<std::string> command) {
  CLI::App* const run = app.add_subcommand("run", "Run a command and record its memory");
  run->formatter(std::make_shared<RunFormatter>());
  auto options = std::make_shared<RunOptions>();
  options->command = std::move(command);
  run->add_option("-o", options->output, "Recording to write (default: COMMAND-PID.vram)")
      ->option_text("FILE");
  run->add_option("--name", options->name, "Name for the recording (default: the command's)")
      ->option_text("NAME");
  run->add_flag("--native", options->recording.native, "Native stacks on tensor events too");
  run->add_flag("--no-python", options->recording.no_python, "No Python stacks");
  run->add_flag("--cpu", options->recording.cpu, "CPU tensors too (default where there is no GPU)");
  run->add_flag("--unpooled", options->recording.unpooled,
                "Run with the frameworks' memory caches off");
  run->add_flag("--start-paused", options->recording.paused,
                "Tensors only from vramscope.start() on");
  run->add_option("--html", options->report.html, "Also write the report as a page")
      ->option_text("FILE");
  run->add_flag("--no-report", options->report.no_report, "Print only the recording's name");
  run->footer(
      "Passes standard streams and signals through and exits with the command's status\n"
      "(128+N after signal N; 127 not found, 126 not executable).");
  run->prefix_command();
  run->callback([run, options, exit_code] {
    // Without `--` the command begins at the first word that is no option.
    const std::vector<std::string> rest = run->remaining();
    if (!rest.empty() && (!options->command.empty() || rest.front().starts_with("-"))) {
      throw CLI::ExtrasError("run", rest);
    }
    if (options->command.empty())
      options->command = rest;
    if (options->command.empty() || options->command.front().empty()) {
      *exit_code =
          Fail("no command: write it behind `--`, as in `vramscope run -- python train.py`");
      return;
    }
    *exit_code = Run(*options).Execute();
  });
}

}  // namespace vramscope::cli
