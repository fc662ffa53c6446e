// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/commands.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "util/size_text.h"

// A finished recording of a running program. Its live log is read as every command reads it: the
// program and its launcher do nothing for it.
namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMostNumber = 1'000'000;
// Of another snapshot, that takes the name which was free a moment ago.
constexpr int kAttempts = 16;

struct SnapshotArguments {
  std::string what;
  std::string output;
};

bool IsPid(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char digit) { return digit >= '0' && digit <= '9'; });
}

util::Result<std::string> FindDirectory(const std::string& what) {
  if (IsPid(what)) {
    const pid_t pid = util::WholeNumber<pid_t>(what).value_or(0);
    if (pid == 0)
      return util::Status::Error(fmt::format("process {} does not exist", what));
    return LiveDirectoryOfProcess(pid);
  }
  std::error_code error;
  std::string path = fs::absolute(what, error).lexically_normal().string();
  if (path.ends_with("/"))
    path.pop_back();
  for (const std::string& directory : {path, LiveDirectoryOf(path), path + ".vram.d"}) {
    if (fs::is_directory(directory, error) && IsLiveDirectory(directory))
      return directory;
  }
  if (fs::is_directory(path, error)) {
    return util::Status::Error(
        fmt::format("{} is not a live recording: use NAME.vram.d or a process ID", what));
  }
  if (fs::exists(path, error) || fs::exists(path + ".vram", error)) {
    return util::Status::Error(
        fmt::format("{} is finished: a snapshot needs a running program", what));
  }
  return util::Status::Error(
      fmt::format("no live recording is named {}: use NAME.vram.d or a process ID", what));
}

// NAME.snapshot-N.vram beside the recording, with the first number that is free.
std::string FreeName(const std::string& directory) {
  std::string name = OutputOf(directory);
  constexpr std::string_view kExtension = ".vram";
  if (name.ends_with(kExtension))
    name.resize(name.size() - kExtension.size());
  struct stat info {};
  std::string path;
  for (int number = 1; number < kMostNumber; ++number) {
    path = fmt::format("{}.snapshot-{}.vram", name, number);
    if (lstat(path.c_str(), &info) != 0 && errno == ENOENT &&
        lstat(LiveDirectoryOf(path).c_str(), &info) != 0)
      break;
  }
  return path;
}

util::Status TakeSnapshot(const SnapshotArguments& arguments) {
  const util::Result<std::string> directory = FindDirectory(arguments.what);
  if (!directory)
    return directory.status();
  if (!LauncherIsAlive(*directory) && LiveRecorders(*directory).empty()) {
    return util::Status::Error(
        fmt::format("the recording {} has ended: `vramscope finish {}` completes it",
                    ShortPath(*directory), ShortPath(*directory)));
  }
  std::error_code error;
  std::string output;
  for (int attempt = 1;; ++attempt) {
    output = arguments.output.empty()
                 ? FreeName(*directory)
                 : fs::absolute(arguments.output, error).lexically_normal().string();
    VRAMSCOPE_RETURN_IF_ERROR(CheckOutput(output));
    const util::Status written = WriteSnapshot(*directory, output);
    if (written.ok())
      break;
    // Another may have taken the name that was free a moment ago.
    struct stat info {};
    const bool is_taken = arguments.output.empty() && lstat(output.c_str(), &info) == 0;
    if (!is_taken || attempt == kAttempts)
      return written;
  }
  const uintmax_t size_bytes = fs::file_size(output, error);
  Note(fmt::format("{} ({})", ShortPath(output), util::FormatBytes(error ? 0 : size_bytes)));
  return {};
}

}  // namespace

void RegisterSnapshot(CLI::App& app, int* exit_code) {
  CLI::App* const snapshot =
      app.add_subcommand("snapshot", "Copy the recording of a running program");
  auto arguments = std::make_shared<SnapshotArguments>();
  snapshot
      ->add_option("PID|NAME", arguments->what,
                   "The recorded process, or its recording: NAME, NAME.vram or NAME.vram.d")
      ->required();
  snapshot
      ->add_option("-o", arguments->output,
                   "Write the copy to FILE (default: NAME.snapshot-N.vram beside the recording)")
      ->option_text("FILE");
  snapshot->footer(
      "The program and its recording continue. `vramscope run --snapshot-on SIGUSR1`\n"
      "takes a snapshot each time `run` receives that signal.");
  snapshot->callback([arguments, exit_code] { *exit_code = ExitOf(TakeSnapshot(*arguments)); });
}

}  // namespace vramscope::cli
