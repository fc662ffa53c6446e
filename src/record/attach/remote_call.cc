// SPDX-License-Identifier: Apache-2.0
#include "record/attach/remote_call.h"

#include <fmt/core.h>
#include <unistd.h>

#include <optional>
#include <thread>
#include <utility>

#include "pipeline/survivors.h"
#include "record/attach/detour.h"
#include "record/attach/python_script.h"
#include "record/attach/remote_code.h"
#include "util/file.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Names in the private folder of a call.
constexpr char kAnswer[] = "answer";  // a file of Python's, a symbolic link of the probe's
constexpr char kLater[] = "later";
// The script of Python, empty for the probe. The side that deletes it decides whether the call is
// made. src/probe/inject/late.cc has the same names.
constexpr char kTicket[] = "answer.call";
constexpr char kEnding[] = "it is ending";  // the answer where no thread can be started any more
constexpr char kNoCode[] = "failed to map segment";  // of the loader
constexpr char kDone[] = "done";                     // the link's target without an error
constexpr size_t kMostAnswerBytes = 1 << 16;
constexpr milliseconds kLookAgain{1};
constexpr milliseconds kLong{1000};
constexpr milliseconds kRetry{50};

void RemoveAll(util::OwnedDirectory& folder) {
  for (const std::string& name : folder.Names()) {
    if (util::Result<util::UniqueFd> file = folder.Open(name, nullptr); file)
      (void)folder.Remove(name, *file);
  }
  (void)folder.RemoveLink(kLater);
  (void)folder.RemoveLink(kAnswer);
  (void)folder.RemoveSelf();
}

util::Status WriteTicket(const util::OwnedDirectory& folder, const std::string& text) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const util::UniqueFd file, folder.CreateFile(kTicket));
  return util::ReplaceContents(file, text);
}

// The answer, when it is there.
std::optional<std::string> ReadAnswer(const util::OwnedDirectory& folder) {
  if (!folder.Has(kAnswer))
    return {};
  if (const std::string target = folder.LinkTarget(kAnswer); !target.empty())
    return target == kDone ? "" : target;
  const util::Result<util::UniqueFd> file = folder.Open(kAnswer, nullptr);
  return file ? util::ReadToEnd(file->get(), kMostAnswerBytes) : std::nullopt;
}

util::Status CheckCallable(pid_t pid, const RemoteProgram& program, bool has_package) {
  std::string why;
  if (program.has_old_python)
    why = "runs Python older than 3.9, which the package does not support";
  else if (program.has_python)
    why = has_package ? "" : "runs Python, and the package is missing: pip install vramscope";
  else if (!program.has_driver)
    why = "runs no Python and has not loaded the CUDA driver: there is nothing to record";
  else if (!program.HasLoader())
    why = "has no C library that attach knows: start it with `vramscope run`";
  if (why.empty())
    return {};
  return util::Status::Error(fmt::format("process {} ({}) {}", pid, util::ProcCommand(pid), why));
}

// Whether the call will not be made any more.
bool TakeBack(const util::OwnedDirectory& folder) {
  const util::Result<util::UniqueFd> file = folder.Open(kTicket, nullptr);
  return file && folder.Remove(kTicket, *file);
}

util::Result<CallEnd> Await(pid_t pid,
                            const util::OwnedDirectory& folder,
                            const CallLimits& limits,
                            const std::function<util::Status()>& ask_again) {
  const auto began = steady_clock::now();
  bool said = false;
  for (;;) {
    const bool runs = IsRunning(pid);
    const auto waited = steady_clock::now() - began;
    const bool is_late = waited > limits.limit;
    const std::optional<std::string> answer = ReadAnswer(folder);
    if (answer && answer->empty())
      return CallEnd::kDone;
    if (answer && answer->find(kNoCode) != std::string::npos) {
      return util::Status::Error(fmt::format(
          "process {} ({}) may not load code, by seccomp or a noexec mount: start it with "
          "`vramscope run`",
          pid, util::ProcCommand(pid)));
    }
    if (answer && (answer != kEnding || is_late)) {
      return util::Status::Error(
          fmt::format("process {} ({}): {}", pid, util::ProcCommand(pid), *answer));
    }
    if (!runs)
      return CallEnd::kGone;
    // Once the program has taken the ticket, its answer comes soon.
    if ((is_late || (limits.give_up && limits.give_up())) && TakeBack(folder))
      return is_late ? CallEnd::kTimeOut : CallEnd::kGivenUp;
    if (!said && waited > kLong && limits.on_wait && folder.Has(kTicket)) {
      said = true;
      limits.on_wait();
    }
    // The script asks for another call.
    if (folder.RemoveLink(kLater)) {
      std::this_thread::sleep_for(kRetry);
      VRAMSCOPE_RETURN_IF_ERROR(ask_again());
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

}  // namespace

util::Result<bool> CheckCallable(pid_t pid, bool has_package) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const RemoteProgram program, FindProgram(pid));
  VRAMSCOPE_RETURN_IF_ERROR(CheckCallable(pid, program, has_package));
  return program.has_python;
}

util::Result<CallEnd> CallInProcess(pid_t pid,
                                    const RemoteCall& call,
                                    const RemoteFiles& files,
                                    const CallLimits& limits) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const RemoteProgram program, FindProgram(pid));
  VRAMSCOPE_RETURN_IF_ERROR(CheckCallable(pid, program, !files.package.empty()));
  VRAMSCOPE_ASSIGN_OR_RETURN(util::OwnedDirectory folder, util::OwnedDirectory::CreateTemporary(
                                                              files.folder->here() + "/call-"));
  const std::string there =
      files.folder->there() + folder.path().substr(files.folder->here().size());
  const auto path = [&](const char* name) { return there + "/" + name; };
  const PythonCall python{files.package, call.function, call.arguments,
                          path(kTicket), path(kAnswer), path(kLater)};
  RemoteTask task;
  if (program.has_python) {
    task = {.way = RemoteTask::Way::kThread, .text = TextFor(python)};
  } else {
    task = {.way = RemoteTask::Way::kLibrary,
            .library = files.probe,
            .function = call.native_function,
            .arguments = {call.native_arguments[0], call.native_arguments[1], path(kAnswer)}};
  }
  const auto ask_again = [&]() -> util::Status {
    // The thread that asked cannot import what it needs. What is loaded may have changed.
    task.way = RemoteTask::Way::kSafePoint;
    VRAMSCOPE_ASSIGN_OR_RETURN(const RemoteProgram now, FindProgram(pid));
    return Detour(pid, now, task);
  };
  util::Status status = WriteTicket(folder, program.has_python ? ScriptFor(python) : "");
  if (status.ok())
    status = Detour(pid, program, task);
  util::Result<CallEnd> end = status.ok() ? Await(pid, folder, limits, ask_again) : status;
  RemoveAll(folder);
  return end;
}

}  // namespace vramscope::cli
