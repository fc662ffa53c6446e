// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "format/layout.h"
#include "format/memory_words.h"
#include "output/names.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "pipeline/survivors.h"
#include "record/child_process.h"
#include "record/environment.h"
#include "record/recording_place.h"
#include "record/sample/host_sampler.h"
#include "record/sample/nvml.h"
#include "record/sample/sampler.h"
#include "record/watch/watches.h"
#include "util/owned_file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

struct RunOptions {
  std::string output;
  std::string name;
  RecordingOptions recording;
  ReportOptions report;
  std::string overflow;  // a SIZE, "all" without one, empty where it is off
  bool xla_hlo = false;
  std::string snapshot_on;
  std::string ring;
  std::string summary;  // a folder
  std::string summary_every = "600s";
  std::string record_ranks;  // "0,7,per-node"; empty: all
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
  void StartSampling();
  void EndSampling(int wait_status);
  void NameUnrecorded();
  void NameSurvivors();
  void NameEnd(int wait_status);
  int Finish(int wait_status);
  util::Status CheckSummary();
  void FinishSummary(bool finished);
  // Into the live directory, as soon as there is one.
  util::Result<XlaDumpFlags> XlaDump() const;

  RunOptions options_;
  Program program_;
  std::string probe_;
  RecordingPlace place_;
  std::string probe_link_;
  std::vector<std::string> notes_;
  Survivors survivors_;
  std::unique_ptr<ChildProcess> child_;
  std::unique_ptr<Nvml> nvml_;
  std::unique_ptr<ProcessWatch> watch_;
  std::unique_ptr<ExitWatch> exits_;
  std::unique_ptr<RefusalWatch> refusals_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<HostSampler> host_;
  int snapshot_signal_ = 0;
  std::unique_ptr<SnapshotTaker> snapshots_;
  std::unique_ptr<RingKeeper> ring_;
  int64_t summary_period_ns_ = 0;
  std::string summary_folder_;  // "": no summary
  std::string summary_file_;
  std::unique_ptr<SummaryTaker> summaries_;
};

util::Status Run::Check() {
  if (options_.name.empty())
    options_.name = NameOfCommand(options_.command);
  VRAMSCOPE_RETURN_IF_ERROR(place_.Choose(options_.output));
  if (!options_.report.html.empty()) {
    VRAMSCOPE_RETURN_IF_ERROR(CheckReportOutput(options_.report.html, place_.output()));
  }
  if (!options_.overflow.empty()) {
    const util::Result<uint64_t> size = util::ParseSize(options_.overflow);
    options_.recording.overflow_bytes = size ? *size : kNoOverflowBound;
  }
  if (!options_.snapshot_on.empty()) {
    const util::Result<int> signal_number = SnapshotSignal(options_.snapshot_on);
    if (!signal_number)
      return signal_number.status();
    snapshot_signal_ = *signal_number;
  }
  if (!options_.ring.empty()) {
    const util::Result<uint64_t> ring = ParseRing(options_.ring);
    if (!ring)
      return ring.status();
    options_.recording.ring_bytes = *ring;
  }
  if (options_.xla_hlo)
    VRAMSCOPE_RETURN_IF_ERROR(XlaDump().status());
  VRAMSCOPE_RETURN_IF_ERROR(CheckSummary());
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

util::Result<XlaDumpFlags> Run::XlaDump() const {
  const char* const flags = getenv("XLA_FLAGS");
  return AddXlaDump(flags != nullptr ? flags : "",
                    place_.live_directory() + "/" + trace::kXlaDumpFolder);
}

util::Status Run::CheckSummary() {
  if (options_.summary.empty()) {
    if (!options_.record_ranks.empty())
      return util::Status::Error(
          "--record-ranks needs --summary DIR: the other ranks leave only a summary");
    return {};
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(summary_period_ns_,
                             ParsePeriod("--summary-every", options_.summary_every, 100'000'000,
                                         int64_t{86'400} * 1'000'000'000));
  std::error_code error;
  const fs::path folder = fs::absolute(options_.summary, error).lexically_normal();
  // Launchers of other ranks may create it at the same time.
  const auto made = util::OwnedDirectory::Create(folder.string());
  if (!made.ok() && !fs::is_directory(folder, error))
    return util::Status::Error("--summary: " + made.status().message());
  summary_folder_ = folder.string();
  return {};
}

// The ranks that --record-ranks lists keep their recordings. A launcher without a rank, as that of
// torchrun, records all of its node's ranks into one file and keeps it.
bool KeepsRecording(const std::string& list) {
  const std::string rank = RankOfEnvironment();
  if (list.empty() || rank.empty())
    return true;
  std::string_view local;
  for (const char* const name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    if (const char* const value = getenv(name); value != nullptr && local.empty())
      local = value;
  }
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string word = list.substr(begin, end - begin);
    if (word == rank || (word == "per-node" && local == "0"))
      return true;
    begin = end + 1;
  }
  return false;
}

// After the recording is finished, or cannot be finished yet.
void Run::FinishSummary(bool finished) {
  if (summaries_ == nullptr)
    return;
  const std::string& recording = finished ? place_.output() : place_.live_directory();
  if (const std::string why = summaries_->Write(recording, {}); !why.empty()) {
    Note(fmt::format("--summary: {}: nothing was written: {}", summary_file_, why));
    return;
  }
  if (!finished || KeepsRecording(options_.record_ranks))
    return;
  const std::optional<util::FileIdentity> file = FindOldRecording(place_.output());
  if (file && util::RemoveFile(place_.output(), *file))
    Note(fmt::format("{} is deleted: --record-ranks {}", ShortPath(place_.output()),
                     options_.record_ranks));
}

void Run::StartSampling() {
  if (!program_.not_recordable.empty()) {
    place_.file().CountLoss(format::Loss::kNotRecorded);
    notes_.push_back(
        fmt::format("{} {}: it cannot be recorded", program_.path, program_.not_recordable));
  }
  watch_ = std::make_unique<ProcessWatch>(child_->pid(), program_.not_recordable.empty(),
                                          place_.live_directory());
  watch_->Start();
  host_ = std::make_unique<HostSampler>(place_.file(), place_.live_directory(), child_->pid());
  host_->Start();
  exits_ = std::make_unique<ExitWatch>(place_.live_directory(), child_->pid());
  exits_->Start();
  refusals_ = std::make_unique<RefusalWatch>(place_.live_directory(), ShortPath(place_.output()));
  refusals_->Start();
  if (snapshot_signal_ != 0) {
    snapshots_ = std::make_unique<SnapshotTaker>(place_.live_directory());
    snapshots_->Start();
  }
  if (const uint64_t size = options_.recording.ring_bytes; size != 0) {
    ring_ = std::make_unique<RingKeeper>(place_.live_directory(), size);
    ring_->Start();
  }
  if (!summary_folder_.empty()) {
    char host[HOST_NAME_MAX + 1] = {};
    gethostname(host, sizeof host - 1);
    std::string name = fmt::format("{}-{}-{}", options_.name, host, child_->pid());
    std::replace(name.begin(), name.end(), '/', '_');
    summary_file_ = summary_folder_ + "/" + name + ".summary.json";
    summaries_ = std::make_unique<SummaryTaker>(place_.live_directory(), summary_file_,
                                                std::chrono::nanoseconds(summary_period_ns_));
    summaries_->Start();
  }
  if (nvml_ == nullptr)
    return;
  sampler_ =
      std::make_unique<Sampler>(*nvml_, place_.file(), SamplerOptions{.watch = watch_.get()});
  sampler_->Start();
}

void Run::NameUnrecorded() {
  const std::vector<UnrecordedProcess> found = watch_->Found();
  if (found.empty())
    return;
  place_.file().CountLoss(format::Loss::kNotRecorded, found.size());
  const auto describe = [](const UnrecordedProcess& process) {
    return fmt::format("{} {}{}", process.name, process.reason,
                       process.uses_gpu ? ", and uses a GPU" : "");
  };
  constexpr size_t kMaxNamed = 32;
  for (size_t i = 0; i < std::min(found.size(), kMaxNamed); ++i) {
    const std::string key = fmt::format("process {}", found[i].pid);
    const std::string value = "not recorded: " + describe(found[i]);
    place_.file().Write(
        format::Runtime{.key = {key.data(), key.size()}, .value = {value.data(), value.size()}});
  }
  // Processes with GPU memory are named first.
  const auto first = std::max_element(found.begin(), found.end(),
                                      [](const UnrecordedProcess& a, const UnrecordedProcess& b) {
                                        return a.uses_gpu < b.uses_gpu;
                                      });
  notes_.push_back(fmt::format(
      "process {} is not recorded: {}{}", first->pid, describe(*first),
      found.size() == 1 ? "" : fmt::format(" ({} more: `vramscope info`)", found.size() - 1)));
}

// Processes that have recorded nothing yet: the recording has no other trace of them.
void Run::NameSurvivors() {
  const auto note = [this](const Recorder& process, const char* text) {
    const std::string key = fmt::format("process {}", process.pid);
    const std::string value =
        fmt::format("{} was running when the program had ended: {}", process.command, text);
    place_.file().Write(
        format::Runtime{.key = {key.data(), key.size()}, .value = {value.data(), value.size()}});
  };
  for (const Recorder& process : survivors_.may_record)
    note(process, "it had not recorded anything");
  for (const Recorder& process : survivors_.idle)
    note(process, "its later allocations are not recorded");
  const auto others = [](size_t count) {
    return count < 2 ? "" : fmt::format(" ({} more)", count - 1);
  };
  if (const Recorder* const process = survivors_.Reason()) {
    notes_.push_back(fmt::format(
        "process {} ({}){} {}: after its end run `vramscope finish {}`", process->pid,
        process->command, others(survivors_.recording.size() + survivors_.may_record.size()),
        survivors_.recording.empty() ? "still runs and may record" : "continues to record",
        place_.live_directory()));
  } else if (!survivors_.idle.empty()) {
    notes_.push_back(fmt::format(
        "process {} ({}){} still runs: its further allocations are not recorded",
        survivors_.idle[0].pid, survivors_.idle[0].command, others(survivors_.idle.size())));
  }
}

// A program that used no memory has no file of its own, and so no process that could have ended.
void Run::NameEnd(int wait_status) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(place_.live_directory(), error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".vrl") && name != format::kLauncherFile)
      return;
  }
  const std::string value = output::WaitText(wait_status);
  constexpr std::string_view kKey = output::kProgramEndNote;
  place_.file().Write(
      format::Runtime{.key = {kKey.data(), kKey.size()}, .value = {value.data(), value.size()}});
}

void Run::EndSampling(int wait_status) {
  const int64_t ended_ns = base::MonotonicNs();
  if (sampler_ != nullptr)
    sampler_->Stop();
  host_->Stop();
  host_->WriteLast();
  watch_->Stop();
  exits_->Stop();
  refusals_->Stop();
  options_.report.refusals_told = refusals_->told();
  if (snapshots_ != nullptr) {
    snapshots_->Stop();
    if (snapshots_->given_up() != 0)
      notes_.push_back(
          "a snapshot was unfinished when the program ended: use the recording instead");
  }
  if (summaries_ != nullptr)
    summaries_->Stop();
  if (ring_ != nullptr) {
    ring_->Stop();
    if (const std::string note = ring_->note(); !note.empty()) {
      notes_.push_back(note);
      constexpr std::string_view kKey = format::kRingNote;
      place_.file().Write(
          format::Runtime{.key = {kKey.data(), kKey.size()}, .value = {note.data(), note.size()}});
    }
  }
  for (const std::string& failure :
       {sampler_ != nullptr ? sampler_->failure() : std::string(), watch_->failure(),
        host_->failure(), exits_->failure(), refusals_->failure(),
        snapshots_ != nullptr ? snapshots_->failure() : "",
        ring_ != nullptr ? ring_->failure() : ""}) {
    if (!failure.empty())
      notes_.push_back(
          fmt::format("`vramscope run` stopped watching the program early: {}", failure));
  }
  NameUnrecorded();
  NameSurvivors();
  for (const ExitSeen& seen : exits_->seen()) {
    place_.file().Write(format::ProcessExit{.time = static_cast<uint64_t>(seen.time_ns),
                                            .pid = static_cast<uint64_t>(seen.pid),
                                            .status = format::kStatusNotKnown});
  }
  format::ProcessExit record;
  record.time = static_cast<uint64_t>(ended_ns);
  record.pid = static_cast<uint64_t>(child_->pid());
  record.status = static_cast<uint64_t>(wait_status);
  place_.file().Write(record);
  NameEnd(wait_status);
  place_.CloseFile();
}

int Run::Finish(int wait_status) {
  const int exit_status = ExitStatusOf(wait_status);
  survivors_ = SurvivorsThatStay(place_.live_directory(), {});
  EndSampling(wait_status);
  child_->ReleaseSignals();
  for (const std::string& note : place_.notes())
    Note(note);
  for (const std::string& note : notes_)
    Note(note);
  if (survivors_.Reason() != nullptr) {
    FinishSummary(false);
    return exit_status;
  }
  RemoveProbeLink(probe_link_);
  FinishSummary(place_.Finish(options_.report, exit_status));
  return exit_status;
}

// From the environment, where PyTorch usually gets them from.
bool UsesExpandableSegments() {
  for (const char* const name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    const char* const value = getenv(name);
    if (value != nullptr &&
        std::string_view(value).find("expandable_segments:True") != std::string_view::npos)
      return true;
  }
  return false;
}

// CLI11 knows nothing of the command that was cut off.
class RunFormatter : public HelpFormatter {
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
      ChildProcess::Fork(program_.path, options_.command, snapshot_signal_);
  if (!child)
    return Fail(child.status().message());
  child_ = std::move(*child);
  // Only after the fork: the program must not inherit what NVML opens.
  if (util::Result<std::unique_ptr<Nvml>> nvml = Nvml::Load(); nvml)
    nvml_ = std::move(*nvml);
  const int gpu_count = nvml_ != nullptr ? static_cast<int>(nvml_->gpus().size()) : -1;
  if (!HasCudaDriver(gpu_count))
    options_.recording.cpu = true;
  if (!options_.overflow.empty() && UsesExpandableSegments())
    notes_.push_back(
        "--overflow does not serve expandable segments: set expandable_segments:False");
  SessionRecord session{options_.name, options_.command, OptionsText(options_.recording)};
  if (options_.xla_hlo) {
    const util::Result<XlaDumpFlags> dump = XlaDump();
    session.xla_dumps = dump && dump->is_users ? dump->folder : trace::kXlaDumpFolder;
  }
  if (const util::Status status = place_.Open(session, child_->pid()); !status.ok())
    return Fail(status.message());
  StartSampling();
  RecordingOptions recording = options_.recording;
  recording.await_report = true;
  if (const auto ids = SessionsOf(place_.live_directory()); !ids.empty())
    recording.session = ids[0];
  if (options_.xla_hlo) {
    if (const util::Result<XlaDumpFlags> dump = XlaDump(); dump)
      recording.xla_flags = dump->flags;
  }
  Variables variables = RecordingVariables(probe_, place_.live_directory(), recording);
  if (program_.refuses_preload)
    variables = WithoutProbe(std::move(variables));
  const int error = child_->Start(variables);
  if (error != 0) {
    sampler_.reset();
    host_.reset();
    watch_.reset();
    exits_.reset();
    refusals_.reset();
    snapshots_.reset();
    ring_.reset();
    summaries_.reset();
    place_.Abandon();
    Fail(fmt::format("cannot start {}: {}", program_.path, std::strerror(error)));
    return error == ENOENT ? kExitNotFound : kExitNotExecutable;
  }
  return Finish(child_->Wait([this] { snapshots_->Request(); }));
}

}  // namespace

void RegisterRun(CLI::App& app, int* exit_code, std::vector<std::string> command) {
  CLI::App* const run = app.add_subcommand("run", "Run a command and record its GPU memory");
  run->formatter(std::make_shared<RunFormatter>());
  auto options = std::make_shared<RunOptions>();
  options->command = std::move(command);
  run->add_option("-o", options->output, "Write the recording to FILE (default: COMMAND-PID.vram)")
      ->option_text("FILE");
  run->add_option("--name", options->name, "Name the recording (default: the command's name)")
      ->option_text("NAME");
  run->add_flag("--native", options->recording.native,
                "Record the C++ stack of every tensor too (default: only of driver calls)");
  run->add_flag("--no-python", options->recording.no_python, "Do not record Python stacks");
  run->add_flag("--cpu", options->recording.cpu,
                "Record CPU tensors too (default if there is no GPU)");
  run->add_flag("--unpooled", options->recording.unpooled,
                "Turn off the frameworks' memory pools: each tensor is a driver allocation");
  run->add_flag("--xla-hlo", options->xla_hlo,
                "Record what XLA's programs hold at their peak, by operation: `report --xla-hlo`");
  run->add_flag("--overflow{all}", options->overflow,
                "When a GPU is full, use host memory instead, at most SIZE: the program continues, "
                "more slowly")
      ->option_text("SIZE")
      ->check([](const std::string& text) {
        const bool ok = text == "all" || util::ParseSize(text).ok();
        return ok ? std::string() : "'" + text + "' is not a size: use a size such as 1500M or 64G";
      });
  run->add_flag("--start-paused", options->recording.paused,
                "Record no tensors until the program calls vramscope.start()");
  run->add_option(
         "--snapshot-on", options->snapshot_on,
         "Copy the recording each time `run` receives SIGNAL: SIGUSR1, SIGUSR2 or SIGRTMIN+N")
      ->option_text("SIGNAL");
  run->add_option("--ring", options->ring,
                  "Limit the recording to SIZE: it keeps live memory, the peak and recent history")
      ->option_text("SIZE");
  run->add_option("--summary", options->summary,
                  "Also write a summary of each rank into the folder DIR, for `vramscope fleet`")
      ->option_text("DIR");
  run->add_option("--summary-every", options->summary_every,
                  "Write the summary this often while the command runs (default: 600s)")
      ->option_text("TIME");
  run->add_option("--record-ranks", options->record_ranks,
                  "With --summary: keep the recordings of these ranks only, as in 0,7,per-node")
      ->option_text("LIST");
  run->add_option("--html", options->report.html, "Also write the report as an HTML page")
      ->option_text("FILE");
  run->add_flag("--no-report", options->report.no_report, "Print only the name of the recording");
  run->footer(
      "`run` passes standard streams and signals to the command and exits with its\n"
      "status (128+N after signal N; 127: not found; 126: not executable).\n\n"
      "Example: vramscope run -o train.vram -- python train.py");
  run->prefix_command();
  run->callback([run, options, exit_code] {
    // Without `--` the command begins at the first word that is not an option.
    const std::vector<std::string> rest = run->remaining();
    if (!rest.empty() && (!options->command.empty() || rest.front().starts_with("-"))) {
      throw CLI::ExtrasError("run", rest);
    }
    if (options->command.empty())
      options->command = rest;
    if (options->command.empty() || options->command.front().empty()) {
      *exit_code =
          Fail("no command given: put it after `--`, as in `vramscope run -- python train.py`");
      return;
    }
    *exit_code = Run(*options).Execute();
  });
}

}  // namespace vramscope::cli
