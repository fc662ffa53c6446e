// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "pipeline/survivors.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

struct FinishOptions {
  std::string directory;
  std::string output;
  uint32_t stopped_pid = 0;  // this recorder asks itself: it has stopped
  bool now = false;
  ReportOptions report;
};

// Waits until no other process finishes the recording.
FinishLock AwaitFinishLock(const std::string& directory) {
  FinishLock lock = TryFinishLock(directory);
  if (lock.is_busy)
    Note(fmt::format("another process is finishing {}: waiting for it", ShortPath(directory)));
  while (lock.is_busy)
    lock = TryFinishLock(directory);
  return lock;
}

int FinishDirectory(const FinishOptions& options) {
  std::error_code error;
  std::string directory = fs::absolute(options.directory, error).lexically_normal().string();
  if (directory.ends_with("/"))
    directory.pop_back();
  // NAME.vram means NAME.vram.d, as in all commands.
  if (!fs::is_directory(directory, error) && fs::is_directory(LiveDirectoryOf(directory), error))
    directory = LiveDirectoryOf(directory);
  const std::string output = options.output.empty()
                                 ? OutputOf(directory)
                                 : fs::absolute(options.output, error).lexically_normal().string();
  // Another may have finished it, just now or long ago.
  const std::string other_output = OutputOf(directory);
  const auto is_finished = [&] {
    return !fs::exists(directory, error) && fs::is_regular_file(other_output, error);
  };
  const auto finished = [&] {
    Note(fmt::format("{} is finished", ShortPath(directory)));
    // Its process may have been killed before it had removed all.
    (void)RemoveOlder(directory);
    RemoveLeftAside(directory);
    return PrintRecording(other_output, options.report) ? kExitOk : kExitError;
  };
  // Between two looks it may have been finished.
  const auto fail = [&](const std::string& message) {
    return is_finished() ? finished() : Fail(message);
  };
  if (is_finished())
    return finished();
  if (!fs::exists(directory, error)) {
    return fail(fmt::format("{} does not exist: use the directory NAME.vram.d of a recording",
                            options.directory));
  }
  if (!fs::is_directory(directory, error)) {
    return fail(
        fmt::format("{} is not a directory: name the NAME.vram.d of an unfinished recording",
                    options.directory));
  }
  if (!IsLiveDirectory(directory)) {
    return fail(
        fmt::format("{} is not a vramscope recording: name a NAME.vram.d", options.directory));
  }
  // A recording of another user, or of another machine, is read all the same.
  util::Result<util::OwnedDirectory> own = util::OwnedDirectory::Open(directory);
  if (options.stopped_pid != 0 && own)
    StopSidecar(*own);
  if (LauncherIsAlive(directory)) {
    return Fail(fmt::format("`vramscope run` is still recording into {}: it will finish it",
                            options.directory));
  }
  const FinishLock lock = AwaitFinishLock(directory);
  if (is_finished())
    return finished();
  Survivors survivors = SurvivorsThatStay(
      directory, {.stopped_pid = options.stopped_pid, .without_events = !options.now});
  if (!survivors.recording.empty()) {
    return Fail(
        fmt::format("process {} ({}) is still recording into {}: let it end first "
                    "(`vramscope report` reads the directory meanwhile)",
                    survivors.recording[0].pid, survivors.recording[0].command, options.directory));
  }
  if (!survivors.may_record.empty() && !options.now) {
    return Fail(fmt::format(
        "process {} ({}) may still record into {}: let it end first, or finish without it: --now",
        survivors.may_record[0].pid, survivors.may_record[0].command, options.directory));
  }
  if (const util::Status status = CheckOutput(output, directory); !status.ok()) {
    return Fail(status.message());
  }
  if (const util::Status status = FinishRecording(directory, output, kExitError); !status.ok()) {
    return fail(status.message());
  }
  // The recording is whole without it.
  util::Status removed = own ? RemoveLiveDirectory(*own) : own.status();
  if (removed.ok() && output == other_output)
    removed = RemoveOlder(directory);
  if (!removed.ok())
    Note(removed.message());
  std::move(survivors.may_record.begin(), survivors.may_record.end(),
            std::back_inserter(survivors.idle));
  for (const Recorder& process : survivors.idle) {
    Note(fmt::format("process {} ({}) still runs: its further allocations are not recorded",
                     process.pid, process.command));
  }
  return PrintRecording(output, options.report) ? kExitOk : kExitError;
}

}  // namespace

int FinishStopped(const std::string& live_directory, pid_t pid, const std::string& output) {
  return FinishDirectory(
      {.directory = live_directory, .output = output, .stopped_pid = static_cast<uint32_t>(pid)});
}

void RegisterFinish(CLI::App& app, int* exit_code) {
  CLI::App* const finish =
      app.add_subcommand("finish", "Complete the recording of a program that was killed");
  auto options = std::make_shared<FinishOptions>();
  finish->add_option("DIR", options->directory, "The directory NAME.vram.d of the recording")
      ->required();
  finish->add_option("-o", options->output, "Write the recording to FILE (default: NAME.vram)")
      ->option_text("FILE");
  // For vramscope.record() of the Python package, whose process continues after its recording.
  finish->add_option("--stopped-pid", options->stopped_pid)->group("");
  finish->add_flag("--now", options->now,
                   "Do not wait for processes that have recorded nothing yet");
  finish->add_flag("--no-report", options->report.no_report, "Print only the name of the file");
  finish->callback([options, exit_code] { *exit_code = FinishDirectory(*options); });
}

}  // namespace vramscope::cli
