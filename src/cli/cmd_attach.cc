// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "pipeline/open_recording.h"
#include "pipeline/survivors.h"
#include "query/dimensions/iteration_times.h"
#include "record/attach/remote_call.h"
#include "record/attach/remote_process.h"
#include "record/environment.h"
#include "record/recording_place.h"
#include "record/sample/nvml.h"
#include "record/sample/sampler.h"
#include "record/watch/onlooker.h"
#include "record/watch/watches.h"
#include "util/file.h"
#include "util/owned_file.h"

// Recording a process that runs already. The launcher's part is here; what happens in the process
// is in record/attach and python/vramscope/_attached.py.
namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kLongestNs = 30 * 86'400 * kSecondNs;
constexpr milliseconds kLook{100};
constexpr milliseconds kDetachLimit{60'000};

struct AttachArguments {
  pid_t pid = 0;
  std::string output;
  std::string duration;  // --for
  uint64_t steps = 0;    // 0: any number
  std::string timeout = "30s";
  std::string ring;
  RecordingOptions recording;
  ReportOptions report;
};

std::string Described(pid_t pid) {
  return fmt::format("process {} ({})", pid, util::ProcCommand(pid));
}

// Root takes the place of the process's user, so that both may write the recording, and keeps the
// one right that it came for.
util::Status BecomeUserOf(pid_t pid) {
  struct stat info {};
  if (geteuid() != 0 || stat(fmt::format("/proc/{}", pid).c_str(), &info) != 0 || info.st_uid == 0)
    return {};
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2]{};
  sets[0].effective = sets[0].permitted = 1U << CAP_SYS_PTRACE;
  if (prctl(PR_SET_KEEPCAPS, 1) != 0 || setresgid(info.st_gid, info.st_gid, info.st_gid) != 0 ||
      setresuid(info.st_uid, info.st_uid, info.st_uid) != 0 ||
      syscall(SYS_capset, &header, sets) != 0) {
    return util::Status::Error(
        fmt::format("cannot become user {}: {}", info.st_uid, util::ErrnoText(errno)));
  }
  return {};
}

// Another version's probe could not be distinguished from ours by the program's calls.
util::Status CheckProbe(pid_t pid, const std::string& probe) {
  std::error_code error;
  for (const Mapping& mapping : ParseMaps(util::ReadProc(pid, "maps").value_or(""))) {
    if (HasProbe(mapping.file) && !fs::equivalent(mapping.file, probe, error)) {
      return util::Status::Error(fmt::format(
          "{} has loaded {}: use the vramscope that belongs to it", Described(pid), mapping.file));
    }
  }
  return {};
}

// What `vramscope attach` does, from the checks to the report.
class Attach {
 public:
  explicit Attach(AttachArguments arguments) : arguments_(std::move(arguments)) {}
  int Execute();
  // For `dump`: the memory of this instant, in the recording at `output`.
  util::Status TakeOne(const std::string& output);

 private:
  // Up to the recording. After an error nothing is left.
  util::Status Start();
  util::Status Check();
  util::Status Begin();
  util::Status OpenPlace();
  void StartWatches();
  util::Result<CallEnd> Call(const RemoteCall& call);
  bool HasSteps();
  void AwaitEnd();
  bool EndRecording();
  std::string StillRecords() const;
  void Close();
  bool HasEnded() const { return end_ == Onlooker::Seen::kEnd; }

  AttachArguments arguments_;
  std::string probe_;
  std::string package_;
  bool has_python_ = false;
  int64_t duration_ns_ = 0;
  int64_t timeout_ns_ = 0;
  int64_t began_ns_ = 0;
  int64_t next_count_ns_ = 0;
  RecordingPlace place_;
  std::unique_ptr<Onlooker> onlooker_;
  std::unique_ptr<Nvml> nvml_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<RingKeeper> ring_;
  Onlooker::Seen end_ = Onlooker::Seen::kNothing;
};

util::Status Attach::Check() {
  const pid_t pid = arguments_.pid;
  if (const std::string why = WhyNotAttachable(pid); !why.empty())
    return util::Status::Error(why);
  if (const auto live = LiveDirectoryOfProcess(pid); live.ok()) {
    return util::Status::Error(fmt::format("{} is recorded already: `vramscope report {}` shows it",
                                           Described(pid), ShortPath(*live)));
  }
  if (!arguments_.duration.empty()) {
    VRAMSCOPE_ASSIGN_OR_RETURN(
        duration_ns_, ParsePeriod("--for", arguments_.duration, kSecondNs / 1000, kLongestNs));
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(
      timeout_ns_, ParsePeriod("--timeout", arguments_.timeout, kSecondNs / 1000, kLongestNs));
  if (!arguments_.ring.empty()) {
    VRAMSCOPE_ASSIGN_OR_RETURN(arguments_.recording.ring_bytes, ParseRing(arguments_.ring));
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(probe_, FindProbe());
  VRAMSCOPE_RETURN_IF_ERROR(CheckProbe(pid, probe_));
  package_ = FindPackage();
  VRAMSCOPE_ASSIGN_OR_RETURN(has_python_, CheckCallable(pid, package_));
  VRAMSCOPE_RETURN_IF_ERROR(BecomeUserOf(pid));
  VRAMSCOPE_RETURN_IF_ERROR(place_.Choose(arguments_.output));
  if (!arguments_.report.html.empty())
    return CheckReportOutput(arguments_.report.html, place_.output());
  return {};
}

util::Status Attach::OpenPlace() {
  if (util::Result<std::unique_ptr<Nvml>> nvml = Nvml::Load(); nvml)
    nvml_ = std::move(*nvml);
  const int gpu_count = nvml_ != nullptr ? static_cast<int>(nvml_->gpus().size()) : -1;
  if (!HasCudaDriver(gpu_count))
    arguments_.recording.cpu = true;
  std::vector<std::string> command = CommandLineOf(arguments_.pid);
  if (command.empty())
    command.push_back(util::ProcCommand(arguments_.pid));
  const SessionRecord session{NameOfCommand(command), command, OptionsText(arguments_.recording)};
  return place_.Open(session, arguments_.pid);
}

void Attach::StartWatches() {
  // Not before the process records: until then its memory would be that of another one.
  if (nvml_ != nullptr && !nvml_->gpus().empty()) {
    sampler_ = std::make_unique<Sampler>(*nvml_, place_.file(), SamplerOptions{});
    sampler_->Start();
  }
  if (arguments_.recording.ring_bytes != 0) {
    ring_ = std::make_unique<RingKeeper>(place_.live_directory(), arguments_.recording.ring_bytes);
    ring_->Start();
  }
}

RemoteCall BeginCall(const std::string& package,
                     const std::string& probe,
                     const std::string& directory,
                     const std::string& options) {
  return {.package = package,
          .function = "begin",
          .arguments = {probe, directory, options},
          .probe = probe,
          .native_function = "vramscope_begin_native",
          .native_arguments = {directory, options}};
}

RemoteCall EndCall(const std::string& package, const std::string& probe) {
  return {.package = package,
          .function = "end",
          .probe = probe,
          .native_function = "vramscope_end_native"};
}

util::Result<CallEnd> Attach::Call(const RemoteCall& call) {
  const CallLimits limits{
      .limit = std::chrono::duration_cast<milliseconds>(std::chrono::nanoseconds(timeout_ns_)),
      .on_wait =
          [this] {
            Note(fmt::format("{} {} at the moment: waiting for at most {}",
                             Described(arguments_.pid),
                             has_python_ ? "executes no Python" : "does not load the probe",
                             arguments_.timeout));
          },
      .give_up =
          [this] {
            return onlooker_->Wait(std::chrono::nanoseconds(0)) == Onlooker::Seen::kSignal;
          }};
  return CallInProcess(arguments_.pid, call, limits);
}

util::Status Attach::Begin() {
  VRAMSCOPE_ASSIGN_OR_RETURN(onlooker_, Onlooker::Open(arguments_.pid));
  VRAMSCOPE_RETURN_IF_ERROR(OpenPlace());
  RecordingOptions recording = arguments_.recording;
  if (const auto ids = SessionsOf(place_.live_directory()); !ids.empty())
    recording.session = ids[0];
  const util::Result<CallEnd> begun =
      Call(BeginCall(package_, probe_, place_.live_directory(), OptionsText(recording)));
  if (!begun)
    return begun.status();
  began_ns_ = base::MonotonicNs();
  switch (*begun) {
    case CallEnd::kDone:
      break;
    case CallEnd::kGone:
      return util::Status::Error(fmt::format("process {} has ended", arguments_.pid));
    case CallEnd::kTimeOut:
      return util::Status::Error(fmt::format(
          "{} {} for {}; try a longer --timeout", Described(arguments_.pid),
          has_python_ ? "is busy in a call outside of Python" : "did not load the probe",
          arguments_.timeout));
    case CallEnd::kGivenUp:
      return util::Status::Error(fmt::format("{} is not recorded", Described(arguments_.pid)));
  }
  StartWatches();
  return {};
}

// Whether as many iterations are over as are wanted. Counts seldom: it reads the whole recording.
bool Attach::HasSteps() {
  constexpr int64_t kRest = 10;  // times what the last count took
  const int64_t began_ns = base::MonotonicNs();
  if (arguments_.steps == 0 || began_ns < next_count_ns_)
    return false;
  bool has = false;
  try {
    const util::Result<std::unique_ptr<tables::Recording>> recording =
        OpenRecording(place_.live_directory(), {.native_names = false});
    has = recording && query::IterationTimes((*recording)->tables()).count() >=
                           static_cast<int64_t>(arguments_.steps);
  } catch (const std::exception& error) {
    // Memory, mostly. This process must not end, because it records the other one.
    Note(fmt::format("--steps: iterations cannot be counted: {}", error.what()));
    has = true;
  }
  next_count_ns_ = base::MonotonicNs() + kRest * (base::MonotonicNs() - began_ns);
  return has;
}

// Until the program ends, the time or the iterations are over, or a signal or `detach` comes.
void Attach::AwaitEnd() {
  const std::string stop = place_.live_directory() + "/" + kStopFile;
  for (;;) {
    std::chrono::nanoseconds rest = kLook;
    if (duration_ns_ != 0) {
      const int64_t left_ns = began_ns_ + duration_ns_ - base::MonotonicNs();
      if (left_ns <= 0)
        return;
      rest = std::min(rest, std::chrono::nanoseconds(left_ns));
    }
    end_ = onlooker_->Wait(rest);
    if (end_ != Onlooker::Seen::kNothing || access(stop.c_str(), F_OK) == 0 || HasSteps())
      return;
  }
}

// Whether the process records no more.
bool Attach::EndRecording() {
  const util::Result<CallEnd> ended = Call(EndCall(package_, probe_));
  if (!ended && IsRunning(arguments_.pid)) {
    Fail(ended.status().message());
    return false;
  }
  if (!ended || *ended == CallEnd::kGone)
    end_ = Onlooker::Seen::kEnd;
  return !ended || *ended == CallEnd::kDone || *ended == CallEnd::kGone;
}

void Attach::Close() {
  const auto ended_ns = static_cast<uint64_t>(base::MonotonicNs());
  if (sampler_ != nullptr)
    sampler_->Stop();
  if (ring_ != nullptr) {
    ring_->Stop();
    if (const std::string note = ring_->note(); !note.empty()) {
      constexpr std::string_view kKey = format::kRingNote;
      place_.file().Write(
          format::Runtime{.key = {kKey.data(), kKey.size()}, .value = {note.data(), note.size()}});
    }
  }
  // Only its parent knows its status.
  if (HasEnded()) {
    place_.file().Write(format::ProcessExit{.time = ended_ns,
                                            .pid = static_cast<uint64_t>(arguments_.pid),
                                            .status = format::kStatusNotKnown});
  }
  place_.CloseFile();
  for (const std::string& note : place_.notes())
    Note(note);
}

util::Status Attach::Start() {
  VRAMSCOPE_RETURN_IF_ERROR(Check());
  util::Status status = Begin();
  if (!status.ok() && !place_.live_directory().empty())
    place_.Abandon();
  return status;
}

std::string Attach::StillRecords() const {
  return fmt::format("{} still records: `vramscope detach {}` ends the recording later",
                     Described(arguments_.pid), arguments_.pid);
}

int Attach::Execute() {
  if (const util::Status status = Start(); !status.ok())
    return Fail(status.message());
  Note(fmt::format("recording {} into {}: Ctrl-C or `vramscope detach {}` ends the recording",
                   Described(arguments_.pid), ShortPath(place_.live_directory()), arguments_.pid));
  AwaitEnd();
  const bool stopped = HasEnded() || EndRecording();
  const std::string who = Described(arguments_.pid);
  Close();
  if (!stopped)
    return Fail(StillRecords());
  onlooker_.reset();
  if (!HasEnded())
    Note(fmt::format("{} continues", who));
  return place_.Finish(arguments_.report, kExitError) ? kExitOk : kExitError;
}

util::Status Attach::TakeOne(const std::string& output) {
  arguments_.output = output;
  arguments_.report.no_report = true;
  VRAMSCOPE_RETURN_IF_ERROR(Start());
  const bool stopped = EndRecording();
  Close();
  if (!stopped)
    return util::Status::Error(StillRecords());
  onlooker_.reset();
  const std::string live = place_.live_directory();
  VRAMSCOPE_RETURN_IF_ERROR(FinishRecording(live, output, kExitError));
  VRAMSCOPE_ASSIGN_OR_RETURN(util::OwnedDirectory directory, util::OwnedDirectory::Open(live));
  return RemoveLiveDirectory(directory);
}

int Detach(pid_t pid) {
  const util::Result<std::string> live = LiveDirectoryOfProcess(pid);
  if (!live)
    return Fail(live.status().message());
  const pid_t launcher = LauncherOf(*live);
  if (launcher != 0) {
    const std::vector<std::string> words = CommandLineOf(launcher);
    if (words.size() < 2 || words[1] != "attach") {
      return Fail(
          fmt::format("{} is not recorded by `vramscope attach`: its own recording ends with "
                      "it, or by vramscope.stop()",
                      Described(pid)));
    }
    const util::Result<util::OwnedDirectory> directory = util::OwnedDirectory::Open(*live);
    if (!directory)
      return Fail(directory.status().message());
    const auto stop = directory->CreateFile(kStopFile);
    const auto deadline = std::chrono::steady_clock::now() + kDetachLimit;
    while (IsRunning(launcher) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(kLook);
    return IsRunning(launcher)
               ? Fail(fmt::format("process {} still finishes {}", launcher, ShortPath(*live)))
               : kExitOk;
  }
  // `vramscope attach` was killed: this process does its work.
  const util::Result<std::string> probe = FindProbe();
  if (!probe)
    return Fail(probe.status().message());
  const util::Result<CallEnd> ended = CallInProcess(pid, EndCall(FindPackage(), *probe), {});
  if (!ended)
    return Fail(ended.status().message());
  if (*ended == CallEnd::kTimeOut)
    return Fail(fmt::format("{} executes no Python: try again", Described(pid)));
  return FinishStopped(*live, pid);
}

struct DumpArguments {
  AttachArguments attach;
  bool json = false;
  std::string html;
};

// Runs this program again, with the standard output of this one.
int RunReport(const std::vector<std::string>& words) {
  std::vector<std::string> command = words;
  command.insert(command.begin(), "/proc/self/exe");
  std::vector<char*> arguments;
  for (std::string& word : command)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execv(arguments[0], arguments.data());
    _exit(kExitError);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : kExitError;
}

int ReportDump(const DumpArguments& arguments, const std::string& recording) {
  std::vector<std::string> words = {"report", recording, "--at", "end"};
  if (arguments.json)
    words.push_back("--json");
  if (!arguments.html.empty())
    words.insert(words.end(), {"--html", arguments.html});
  return RunReport(words);
}

int Dump(DumpArguments arguments) {
  if (const util::Status status = BecomeUserOf(arguments.attach.pid); !status.ok())
    return Fail(status.message());
  util::Result<util::OwnedDirectory> folder = MakePrivateFolder();
  if (!folder)
    return Fail(folder.status().message());
  const std::string recording = fmt::format("{}/{}.vram", folder->path(), arguments.attach.pid);
  const util::Status taken = Attach(arguments.attach).TakeOne(recording);
  const int status = taken.ok() ? ReportDump(arguments, recording) : Fail(taken.message());
  if (const auto file = FindOldRecording(recording))
    (void)util::RemoveFile(recording, *file);
  (void)folder->RemoveSelf();
  return status;
}

void AddAttachOptions(CLI::App& command, AttachArguments* arguments) {
  command.add_option("PID", arguments->pid, "The process to attach to")->required();
  command
      .add_option("--timeout", arguments->timeout,
                  "Give up if the process executes no Python for this long (default: 30s)")
      ->option_text("TIME");
}

}  // namespace

void RegisterAttach(CLI::App& app, int* exit_code) {
  CLI::App* const attach = app.add_subcommand("attach", "Record a process that already runs");
  auto arguments = std::make_shared<AttachArguments>();
  AddAttachOptions(*attach, arguments.get());
  attach
      ->add_option("-o", arguments->output,
                   "Write the recording to FILE (default: COMMAND-PID.vram)")
      ->option_text("FILE");
  attach
      ->add_option("--for", arguments->duration,
                   "Record for this long (default: until Ctrl-C, `vramscope detach` or its end)")
      ->option_text("TIME");
  attach
      ->add_option("--steps", arguments->steps,
                   "End the recording after N iterations, or soon after")
      ->check(CheckCount)
      ->option_text("N");
  attach->add_flag("--native", arguments->recording.native,
                   "Record the C++ stack of every tensor too (default: only of driver calls)");
  attach->add_flag("--cpu", arguments->recording.cpu,
                   "Record CPU tensors too (default if there is no GPU)");
  attach
      ->add_option("--ring", arguments->ring,
                   "Limit the recording to SIZE: it keeps live memory, the peak and recent history")
      ->option_text("SIZE");
  attach->add_option("--html", arguments->report.html, "Also write the report as an HTML page")
      ->option_text("FILE");
  attach->add_flag("--no-report", arguments->report.no_report,
                   "Print only the name of the recording");
  attach->footer("Example: vramscope attach 1234 --for 60s -o train.vram");
  attach->callback([arguments, exit_code] { *exit_code = Attach(*arguments).Execute(); });
}

void RegisterDetach(CLI::App& app, int* exit_code) {
  CLI::App* const detach =
      app.add_subcommand("detach", "End the recording that `vramscope attach` began");
  auto pid = std::make_shared<pid_t>(0);
  detach->add_option("PID", *pid, "The process that is recorded")->required();
  detach->callback([pid, exit_code] { *exit_code = Detach(*pid); });
}

void RegisterDump(CLI::App& app, int* exit_code) {
  CLI::App* const dump =
      app.add_subcommand("dump", "Show what holds a running process's memory now");
  auto arguments = std::make_shared<DumpArguments>();
  AddAttachOptions(*dump, &arguments->attach);
  dump->add_flag("--cpu", arguments->attach.recording.cpu,
                 "Show CPU tensors too (default if there is no GPU)");
  dump->add_flag("--json", arguments->json, "Print JSON");
  dump->add_option("--html", arguments->html, "Write an HTML page")->option_text("FILE");
  dump->callback([arguments, exit_code] { *exit_code = Dump(*arguments); });
}

}  // namespace vramscope::cli
