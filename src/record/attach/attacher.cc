// SPDX-License-Identifier: Apache-2.0
#include "record/attach/attacher.h"

#include <fmt/core.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "pipeline/console.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "pipeline/survivors.h"
#include "query/dimensions/iteration_times.h"
#include "record/attach/remote_process.h"
#include "tables/imported.h"
#include "util/file.h"

namespace vramscope::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{100};

RemoteCall BeginCall(const std::string& probe,
                     const std::string& directory,
                     const std::string& options) {
  return {.function = "begin",
          .arguments = {probe, directory, options},
          .native_function = "vramscope_begin_native",
          .native_arguments = {directory, options}};
}

RemoteCall EndCall() {
  return {.function = "end", .native_function = "vramscope_end_native"};
}

// The copies or originals that a process can load.
util::Result<RemoteFiles> FilesFor(pid_t pid, SharedFolder& folder) {
  RemoteFiles files;
  files.folder = &folder;
  VRAMSCOPE_ASSIGN_OR_RETURN(const std::string probe, FindProbe());
  VRAMSCOPE_ASSIGN_OR_RETURN(files.probe, LoadedProbe(pid, probe));
  if (files.probe.empty()) {
    VRAMSCOPE_ASSIGN_OR_RETURN(files.probe, folder.ShareFile(probe));
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(files.package, folder.SharePackage(FindPackage()));
  return files;
}

}  // namespace

std::string ProcessText(pid_t pid) {
  return fmt::format("process {} ({})", pid, util::ProcCommand(pid));
}

util::Status BecomeUserOf(pid_t pid) {
  const std::string status = util::ReadProc(pid, "status").value_or("");
  const std::optional<uint64_t> user = EffectiveId(status, "Uid");
  const std::optional<uint64_t> group = EffectiveId(status, "Gid");
  if (geteuid() != 0 || !user || !group || *user == 0)
    return {};
  const auto uid = static_cast<uid_t>(*user);
  const auto gid = static_cast<gid_t>(*group);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2]{};
  sets[0].effective = sets[0].permitted = 1U << CAP_SYS_PTRACE;
  if (prctl(PR_SET_KEEPCAPS, 1) != 0 || setresgid(gid, gid, gid) != 0 ||
      setresuid(uid, uid, uid) != 0 || syscall(SYS_capset, &header, sets) != 0) {
    return util::Status::Error(
        fmt::format("cannot become user {}: {}", uid, util::ErrnoText(errno)));
  }
  return {};
}

util::Status Attacher::Check() {
  const pid_t pid = options_.pid;
  if (const std::string why = WhyNotAttachable(pid); !why.empty())
    return util::Status::Error(why);
  if (const auto live = LiveDirectoryOfProcess(pid); live.ok()) {
    return util::Status::Error(fmt::format("{} is recorded already: `vramscope report {}` shows it",
                                           ProcessText(pid), ShortPath(*live)));
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(has_python_, CheckCallable(pid, !FindPackage().empty()));
  VRAMSCOPE_RETURN_IF_ERROR(BecomeUserOf(pid));
  VRAMSCOPE_RETURN_IF_ERROR(place_.Choose(options_.output));
  if (!options_.html.empty())
    return CheckReportOutput(options_.html, place_.output());
  return {};
}

util::Status Attacher::Share() {
  VRAMSCOPE_ASSIGN_OR_RETURN(folder_, SharedFolder::Make(options_.pid));
  VRAMSCOPE_ASSIGN_OR_RETURN(files_, FilesFor(options_.pid, folder_));
  if (folder_.is_elsewhere())
    place_.RecordIn(folder_.here(), folder_.shown());
  return {};
}

util::Status Attacher::OpenPlace() {
  if (util::Result<std::unique_ptr<Nvml>> nvml = Nvml::Load(); nvml)
    nvml_ = std::move(*nvml);
  const int gpu_count = nvml_ != nullptr ? static_cast<int>(nvml_->gpus().size()) : -1;
  if (!HasCudaDriver(gpu_count))
    options_.recording.cpu = true;
  std::vector<std::string> command = CommandLineOf(options_.pid);
  if (command.empty())
    command.push_back(util::ProcCommand(options_.pid));
  const SessionRecord session{NameOfCommand(command), command, OptionsText(options_.recording)};
  return place_.Open(session, options_.pid);
}

void Attacher::StartWatches() {
  // Not before the process records: until then its memory would be that of another one.
  if (nvml_ != nullptr && !nvml_->gpus().empty()) {
    sampler_ = std::make_unique<Sampler>(*nvml_, place_.file(), SamplerOptions{});
    sampler_->Start();
  }
  if (options_.recording.ring_bytes != 0) {
    ring_ = std::make_unique<RingKeeper>(place_.live_directory(), options_.recording.ring_bytes);
    ring_->Start();
  }
}

util::Result<CallEnd> Attacher::Call(const RemoteCall& call) {
  const CallLimits limits{
      .limit =
          std::chrono::duration_cast<milliseconds>(std::chrono::nanoseconds(options_.timeout_ns)),
      .on_wait =
          [this] {
            Note(fmt::format(
                "{} {} at the moment: waiting for at most {}", ProcessText(options_.pid),
                has_python_ ? "executes no Python" : "does not load the probe", options_.timeout));
          },
      .give_up =
          [this] {
            return onlooker_->Wait(std::chrono::nanoseconds(0)) == Onlooker::Seen::kSignal;
          }};
  return CallInProcess(options_.pid, call, files_, limits);
}

// The function has been called, or why not.
util::Status Attacher::Ask(const RemoteCall& call) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const CallEnd end, Call(call));
  switch (end) {
    case CallEnd::kDone:
      break;
    case CallEnd::kGone:
      return util::Status::Error(fmt::format("process {} has ended", options_.pid));
    case CallEnd::kTimeOut:
      return util::Status::Error(fmt::format(
          "{} {} for {}; try a longer --timeout", ProcessText(options_.pid),
          has_python_ ? "is busy in a call outside of Python" : "did not load the probe",
          options_.timeout));
    case CallEnd::kGivenUp:
      return util::Status::Error(fmt::format("{} is not recorded", ProcessText(options_.pid)));
  }
  return {};
}

util::Status Attacher::CallPackage(const std::string& function,
                                   std::vector<std::string> arguments) {
  if (!has_python_) {
    return util::Status::Error(
        fmt::format("{} has no Python, whose objects --holders needs", ProcessText(options_.pid)));
  }
  return Ask({.function = function, .arguments = std::move(arguments)});
}

util::Status Attacher::Begin() {
  VRAMSCOPE_RETURN_IF_ERROR(Share());
  VRAMSCOPE_ASSIGN_OR_RETURN(onlooker_, Onlooker::Open(options_.pid));
  VRAMSCOPE_RETURN_IF_ERROR(OpenPlace());
  RecordingOptions recording = options_.recording;
  if (const auto ids = SessionsOf(place_.live_directory()); !ids.empty())
    recording.session = ids[0];
  if (HasOwnPids(util::ReadProc(options_.pid, "status").value_or("")))
    recording.pid = options_.pid;
  std::string directory = place_.live_directory();
  if (folder_.is_elsewhere())
    directory.replace(0, folder_.here().size(), folder_.there());
  VRAMSCOPE_RETURN_IF_ERROR(Ask(BeginCall(files_.probe, directory, OptionsText(recording))));
  began_ns_ = base::MonotonicNs();
  StartWatches();
  return {};
}

// Whether as many iterations are over as are wanted. Counts seldom: it reads the whole recording.
bool Attacher::HasSteps() {
  constexpr int64_t kRest = 10;  // times what the last count took
  const int64_t began_ns = base::MonotonicNs();
  if (options_.steps == 0 || began_ns < next_count_ns_)
    return false;
  bool has = false;
  try {
    const util::Result<std::unique_ptr<tables::Recording>> recording =
        OpenRecording(place_.live_directory(), {.native_names = false});
    has = recording && query::IterationTimes((*recording)->tables()).count() >=
                           static_cast<int64_t>(options_.steps);
  } catch (const std::exception& error) {
    // Memory, mostly. This process must not end, because it records the other one.
    Note(fmt::format("--steps: iterations cannot be counted: {}", error.what()));
    has = true;
  }
  next_count_ns_ = base::MonotonicNs() + kRest * (base::MonotonicNs() - began_ns);
  return has;
}

void Attacher::AwaitEnd() {
  const std::string stop = place_.live_directory() + "/" + kStopFile;
  for (;;) {
    std::chrono::nanoseconds rest = kLook;
    if (options_.duration_ns != 0) {
      const int64_t left_ns = began_ns_ + options_.duration_ns - base::MonotonicNs();
      if (left_ns <= 0)
        return;
      rest = std::min(rest, std::chrono::nanoseconds(left_ns));
    }
    end_ = onlooker_->Wait(rest);
    if (end_ != Onlooker::Seen::kNothing || access(stop.c_str(), F_OK) == 0 || HasSteps())
      return;
  }
}

util::Status Attacher::EndInProcess() {
  const util::Result<CallEnd> ended = Call(EndCall());
  if (!ended && IsRunning(options_.pid))
    Fail(ended.status().message());
  else if (!ended || *ended == CallEnd::kGone)
    end_ = Onlooker::Seen::kEnd;
  if (has_ended() || (ended && *ended == CallEnd::kDone))
    return {};
  return util::Status::Error(
      fmt::format("{} still records: `vramscope detach {}` ends the recording later",
                  ProcessText(options_.pid), options_.pid));
}

util::Status Attacher::End() {
  const util::Status status = has_ended() ? util::Status() : EndInProcess();
  if (status.ok() && !has_ended()) {
    constexpr std::string_view kKey = tables::kDetachedNote;
    const std::string pid = std::to_string(options_.pid);
    place_.file().Write(
        format::Runtime{.key = {kKey.data(), kKey.size()}, .value = {pid.data(), pid.size()}});
  }
  Close();
  return status;
}

void Attacher::Close() {
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
  if (has_ended()) {
    place_.file().Write(format::ProcessExit{.time = ended_ns,
                                            .pid = static_cast<uint64_t>(options_.pid),
                                            .status = format::kStatusNotKnown});
  }
  place_.CloseFile();
  for (const std::string& note : place_.notes())
    Note(note);
}

util::Status Attacher::Start() {
  VRAMSCOPE_RETURN_IF_ERROR(Check());
  util::Status status = Begin();
  if (!status.ok() && !place_.live_directory().empty())
    place_.Abandon();
  return status;
}

util::Result<SharedFolder> EndWithoutAttacher(pid_t pid) {
  VRAMSCOPE_ASSIGN_OR_RETURN(SharedFolder folder, SharedFolder::Make(pid));
  VRAMSCOPE_ASSIGN_OR_RETURN(const RemoteFiles files, FilesFor(pid, folder));
  VRAMSCOPE_ASSIGN_OR_RETURN(const CallEnd ended, CallInProcess(pid, EndCall(), files, {}));
  if (ended == CallEnd::kTimeOut)
    return util::Status::Error(fmt::format("{} does not answer: try again", ProcessText(pid)));
  return folder;
}

}  // namespace vramscope::cli
