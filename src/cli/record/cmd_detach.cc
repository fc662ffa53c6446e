// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "pipeline/survivors.h"
#include "record/attach/attacher.h"
#include "record/attach/shared_folder.h"
#include "record/watch/watches.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

// Has `vramscope attach` end its recording, and waits for it.
int AskAttacher(pid_t pid, pid_t attacher, const std::string& live) {
  constexpr std::chrono::milliseconds kLook{100};
  constexpr std::chrono::seconds kLimit{60};
  const std::vector<std::string> words = CommandLineOf(attacher);
  if (words.size() < 2 || words[1] != "attach") {
    return Fail(
        fmt::format("{} is not recorded by `vramscope attach`: its own recording ends with "
                    "it, or by vramscope.stop()",
                    ProcessText(pid)));
  }
  const util::Result<util::OwnedDirectory> directory = util::OwnedDirectory::Open(live);
  if (!directory)
    return Fail(directory.status().message());
  const auto stop = directory->CreateFile(kStopFile);
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  while (IsRunning(attacher) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kLook);
  return IsRunning(attacher)
             ? Fail(fmt::format("process {} still finishes {}", attacher, ShortPath(live)))
             : kExitOk;
}

int Detach(pid_t pid) {
  // Before that, a container of another user cannot be looked into.
  if (const util::Status status = BecomeUserOf(pid); !status.ok())
    return Fail(status.message());
  const util::Result<std::string> live = LiveDirectoryOfProcess(pid);
  if (!live)
    return Fail(live.status().message());
  if (const pid_t attacher = LauncherOf(*live); attacher != 0)
    return AskAttacher(pid, attacher, *live);
  // `vramscope attach` was killed: this process does its work.
  const util::Result<SharedFolder> ended = EndWithoutAttacher(pid);
  if (!ended)
    return Fail(ended.status().message());
  std::string output;
  std::error_code error;
  if (ended->is_elsewhere())
    output = fs::current_path(error) / fs::path(OutputOf(*live)).filename();
  const int status = FinishStopped(*live, pid, output);
  ended->RemoveLeftovers();
  return status;
}

}  // namespace

void RegisterDetach(CLI::App& app, int* exit_code) {
  CLI::App* const detach =
      app.add_subcommand("detach", "End the recording that `vramscope attach` began");
  auto pid = std::make_shared<pid_t>(0);
  detach->add_option("PID", *pid, "The process that is recorded")->required();
  detach->callback([pid, exit_code] { *exit_code = Detach(*pid); });
}

}  // namespace vramscope::cli
