// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
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
#include <functional>
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
#include "output/terminal.h"
#include "pipeline/open_recording.h"
#include "pipeline/survivors.h"
#include "query/dimensions/iteration_times.h"
#include "record/attach/holders.h"
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
  // For `dump`: the memory of this instant, in the recording at `output`. `look`, if any, is called
  // while the process records; its error is the result.
  util::Status TakeOne(const std::string& output, const std::function<util::Status()>& look);
  // Calls a function of the package's _attached in the process.
  util::Status AskPython(const std::string& function, std::vector<std::string> arguments);
  bool records_cpu() const { return arguments_.recording.cpu; }

 private:
  // Up to the recording. After an error nothing is left.
  util::Status Start();
  util::Status Check();
  util::Status Begin();
  util::Status OpenPlace();
  void StartWatches();
  util::Result<CallEnd> Call(const RemoteCall& call);
  util::Status Ask(const RemoteCall& call);
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

// The function has been called, or why not.
util::Status Attach::Ask(const RemoteCall& call) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const CallEnd end, Call(call));
  switch (end) {
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
  return {};
}

util::Status Attach::AskPython(const std::string& function, std::vector<std::string> arguments) {
  if (!has_python_) {
    return util::Status::Error(
        fmt::format("{} has no Python, whose objects --holders needs", Described(arguments_.pid)));
  }
  return Ask({.package = package_, .function = function, .arguments = std::move(arguments)});
}

util::Status Attach::Begin() {
  VRAMSCOPE_ASSIGN_OR_RETURN(onlooker_, Onlooker::Open(arguments_.pid));
  VRAMSCOPE_RETURN_IF_ERROR(OpenPlace());
  RecordingOptions recording = arguments_.recording;
  if (const auto ids = SessionsOf(place_.live_directory()); !ids.empty())
    recording.session = ids[0];
  VRAMSCOPE_RETURN_IF_ERROR(
      Ask(BeginCall(package_, probe_, place_.live_directory(), OptionsText(recording))));
  began_ns_ = base::MonotonicNs();
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

util::Status Attach::TakeOne(const std::string& output, const std::function<util::Status()>& look) {
  arguments_.output = output;
  arguments_.report.no_report = true;
  VRAMSCOPE_RETURN_IF_ERROR(Start());
  const util::Status looked = look ? look() : util::Status();
  const bool stopped = EndRecording();
  Close();
  if (!stopped)
    return util::Status::Error(StillRecords());
  onlooker_.reset();
  const std::string live = place_.live_directory();
  VRAMSCOPE_RETURN_IF_ERROR(FinishRecording(live, output, kExitError));
  VRAMSCOPE_ASSIGN_OR_RETURN(util::OwnedDirectory directory, util::OwnedDirectory::Open(live));
  VRAMSCOPE_RETURN_IF_ERROR(RemoveLiveDirectory(directory));
  return looked;
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
    return Fail(fmt::format("{} does not answer: try again", Described(pid)));
  return FinishStopped(*live, pid);
}

constexpr char kUsualHolders[] = "10";

struct DumpArguments {
  AttachArguments attach;
  bool json = false;
  std::string html;
  bool with_holders = false;
  std::string holders;  // --holders, "" without a number
  std::string walk = "1s";
};

// Runs this program again. Its standard output is this one's, or goes into `output`.
int RunReport(const std::vector<std::string>& words, std::string* output) {
  std::vector<std::string> command = words;
  command.insert(command.begin(), "/proc/self/exe");
  std::vector<char*> arguments;
  for (std::string& word : command)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2] = {-1, -1};
  if (output != nullptr && pipe2(ends, O_CLOEXEC) != 0)
    return kExitError;
  const pid_t child = fork();
  if (child == 0) {
    if (output != nullptr)
      dup2(ends[1], STDOUT_FILENO);
    execv(arguments[0], arguments.data());
    _exit(kExitError);
  }
  if (output != nullptr) {
    constexpr size_t kMostBytes = size_t{1} << 30;
    close(ends[1]);
    *output = util::ReadToEnd(ends[0], kMostBytes).value_or("");
    close(ends[0]);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : kExitError;
}

// What `vramscope dump` does with what it has taken.
class DumpReport {
 public:
  explicit DumpReport(const DumpArguments& arguments) : arguments_(arguments) {}

  // The walk, while the process records.
  util::Status Look(Attach* attach, const std::string& file);
  int Print(const std::string& recording) const;

 private:
  int PrintJson(std::vector<std::string> words) const;

  const DumpArguments& arguments_;
  std::string json_;  // the holders
  Holders holders_;
};

util::Status DumpReport::Look(Attach* attach, const std::string& file) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const int64_t walk_ns,
                             ParsePeriod("--walk", arguments_.walk, kSecondNs / 1000, kLongestNs));
  VRAMSCOPE_RETURN_IF_ERROR(attach->AskPython(
      "holders",
      {file, arguments_.holders.empty() ? kUsualHolders : arguments_.holders,
       std::to_string(static_cast<double>(walk_ns) / 1e9), attach->records_cpu() ? "1" : "0"}));
  constexpr size_t kMostBytes = size_t{64} << 20;
  VRAMSCOPE_ASSIGN_OR_RETURN(json_, util::ReadFile(file, kMostBytes));
  VRAMSCOPE_ASSIGN_OR_RETURN(holders_, ParseHolders(json_));
  return {};
}

int DumpReport::PrintJson(std::vector<std::string> words) const {
  words.push_back("--json");
  if (!arguments_.with_holders)
    return RunReport(words, nullptr);
  std::string report;
  const int status = RunReport(words, &report);
  const size_t end = report.find_last_of('}');
  if (status != kExitOk || end == std::string::npos)
    return kExitError;
  report.resize(report.find_last_not_of(" \n", end - 1) + 1);
  return ExitOf(PrintOut(fmt::format("{},\n \"holders\": {}\n}}\n", report, json_)));
}

int DumpReport::Print(const std::string& recording) const {
  std::vector<std::string> words = {"report", recording, "--at", "end", "--temporary"};
  if (!arguments_.html.empty())
    words.insert(words.end(), {"--html", arguments_.html});
  if (arguments_.json)
    return PrintJson(std::move(words));
  const int status = RunReport(words, nullptr);
  if (!arguments_.with_holders || status != kExitOk)
    return status;
  return ExitOf(PrintOut(HoldersText(holders_, output::DetectStyle(STDOUT_FILENO))));
}

int Dump(const DumpArguments& arguments) {
  if (const util::Status status = BecomeUserOf(arguments.attach.pid); !status.ok())
    return Fail(status.message());
  util::Result<util::OwnedDirectory> folder = MakePrivateFolder();
  if (!folder)
    return Fail(folder.status().message());
  const std::string recording = fmt::format("{}/{}.vram", folder->path(), arguments.attach.pid);
  constexpr char kHoldersFile[] = "holders.json";
  Attach attach(arguments.attach);
  DumpReport report(arguments);
  std::function<util::Status()> look;
  if (arguments.with_holders)
    look = [&] { return report.Look(&attach, folder->path() + "/" + kHoldersFile); };
  const util::Status taken = attach.TakeOne(recording, look);
  const int status = taken.ok() ? report.Print(recording) : Fail(taken.message());
  if (const auto file = FindOldRecording(recording))
    (void)util::RemoveFile(recording, *file);
  if (util::Result<util::UniqueFd> file = folder->Open(kHoldersFile, nullptr); file)
    (void)folder->Remove(kHoldersFile, *file);
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
  CLI::Option* const holders =
      dump->add_option("--holders", arguments->holders,
                       "Show what keeps the N largest groups of tensors alive (default: 10)")
          ->expected(0, 1)
          ->check(CheckCount)
          ->option_text("[N]");
  dump->add_option("--walk", arguments->walk,
                   "With --holders: look at objects for at most so long (default: 1s)")
      ->option_text("TIME");
  dump->callback([arguments, holders, exit_code] {
    arguments->with_holders = holders->count() != 0;
    *exit_code = Dump(*arguments);
  });
}

}  // namespace vramscope::cli
